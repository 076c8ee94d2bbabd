"""Which programs run another program, and where in their words it stands. Tables alone.

Next: wrappers.py (reads them).
"""

from dataclasses import dataclass

from egress_proxy.safety.values import names

SHELLS = names("sh bash zsh dash ksh ash fish csh tcsh mksh rbash pwsh-sh nu elvish xonsh osh yash posh")

# Language -> options whose value is a program text.
CODE_FLAGS: dict[str, tuple[str, ...]] = {
    "python": ("-c",),
    "perl": ("-e", "-E"),
    "ruby": ("-e",),
    "node": ("-e", "--eval", "-p", "--print"),
    "bun": ("-e", "--eval"),
    "deno": ("eval",),
    "php": ("-r",),
    "lua": ("-e",),
    "osascript": ("-e",),
    "rscript": ("-e",),
    "expect": ("-c",),
    "groovy": ("-e",),
    "julia": ("-e",),
    "r": ("-e",),
    "emacs": ("--eval", "-eval", "--execute", "-f"),
}
INTERPRETERS = frozenset(CODE_FLAGS) | {"nodejs", "tclsh"}

# Program -> options whose value is a command line for a shell.
SHELL_OPTIONS: dict[str, tuple[str, ...]] = {
    "su": ("-c", "--command"),
    "runuser": ("-c", "--command"),
    "script": ("-c", "--command"),
    "flock": ("-c", "--command"),
    "npm": ("-c", "--call"),
    "npx": ("-c", "--call"),
    "pnpx": ("-c", "--call"),
    "nix-shell": ("--run", "--command"),
    "zip": ("-TT", "--unzip-command"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "tar": ("--to-command", "-I", "--use-compress-program"),
    "pg_ctl": ("--shell",),
    "hyperfine": ("--prepare", "--setup", "--cleanup"),
    "inotifywait": ("--exec",),
    "watchexec": ("--shell-command",),
    "nodemon": ("--exec", "-x"),
    "ansible": ("-a", "--args"),
    "vagrant": ("-c", "--command"),
    "sg": ("-c",),
    "pwsh": ("-c", "-Command"),
    "gcloud": ("--command",),
    "fly": ("-C", "--command"),
    "flyctl": ("-C", "--command"),
    "man": ("-P", "--pager"),
    "scp": ("-S",),
    "sftp": ("-S",),
    "az": ("--scripts",),
    "fzf": ("--preview",),
}
# Each of their operands is a command line for a shell.
SHELL_OPERANDS = names("hyperfine concurrently")
# They print, look for or look up their words. Of all other programs that are not known, a command
# in their words that would remove a root folder or overwrite a disk is followed as if it were run.
MENTIONING = names(
    ": [ [[ ack ag apropos basename cowsay echo egrep fgrep figlet grep help info logger man print "
    "printf read rg say test tldr type wall whatis whereis which"
)
# What a variable of this name holds is run as a command by many programs.
COMMAND_VARIABLES = names(
    "EDITOR VISUAL PAGER MANPAGER BROWSER GIT_EDITOR GIT_PAGER GIT_SEQUENCE_EDITOR GIT_SSH_COMMAND GIT_SSH "
    "GIT_EXTERNAL_DIFF GIT_ASKPASS SSH_ASKPASS GIT_PROXY_COMMAND PROMPT_COMMAND LESSOPEN SYSTEMD_EDITOR "
    "SUDO_EDITOR FCEDIT RSYNC_RSH PSQL_PAGER PSQL_EDITOR KUBE_EDITOR"
)
# Program -> options whose value is one of the program's own commands; `!…` there is a shell's.
BANG_OPTIONS: dict[str, tuple[str, ...]] = {
    "vi": ("-c", "--cmd"),
    "vim": ("-c", "--cmd"),
    "nvim": ("-c", "--cmd"),
    "ex": ("-c", "--cmd"),
    "view": ("-c", "--cmd"),
    "gdb": ("-ex", "-iex", "--eval-command"),
    "less": (),
    "more": (),
    "psql": ("-c", "--command"),
    "mysql": ("-e", "--execute"),
}


@dataclass(frozen=True, slots=True)
class Wrapper:
    """``values``: short options that take a value; ``long_values``: long ones.

    ``operands``: how many words stand before the inner command. ``joins``: the words become one
    text for a shell. ``verbs``: only below one of these. ``flags``: for programs with so many
    options that take a value that those without are listed instead; implies that others take one.
    """

    values: str = ""
    long_values: tuple[str, ...] = ()
    operands: int = 0
    joins: bool = False
    verbs: tuple[str, ...] = ()
    flags: str | None = None
    long_flags: tuple[str, ...] = ()
    after_dashes: bool = False  # only what stands after `--` is a command


_CONTAINER_FLAGS = (
    "--rm --init --privileged --detach --interactive --tty --read-only --no-healthcheck --quiet --no-deps "
    "--service-ports --publish-all --oom-kill-disable --sig-proxy --build"
)
_CONTAINER = Wrapper(flags="itdPqT", long_flags=tuple(_CONTAINER_FLAGS.split()), operands=1)
_RUNS = Wrapper(verbs=("run", "exec", "x"))
_BEHIND_DASHES = Wrapper(after_dashes=True)
_TERMINAL = Wrapper(verbs=("-e", "-x", "--"), joins=True)

WRAPPERS: dict[str, Wrapper] = {
    "sudo": Wrapper(
        "CDghpRrTtUu",
        (
            "--user",
            "--group",
            "--host",
            "--prompt",
            "--chdir",
            "--chroot",
            "--role",
            "--type",
            "--close-from",
            "--other-user",
            "--command-timeout",
        ),
    ),
    "doas": Wrapper("uC"),
    "pkexec": Wrapper("", ("--user",)),
    "gosu": Wrapper(operands=1),
    "su-exec": Wrapper(operands=1),
    "env": Wrapper("uCa", ("--unset", "--chdir", "--argv0")),
    "nice": Wrapper("n", ("--adjustment",)),
    "ionice": Wrapper("cnpPu", ("--class", "--classdata")),
    "chrt": Wrapper("TPD", operands=1),
    "taskset": Wrapper(operands=1),
    "timeout": Wrapper("ks", ("--kill-after", "--signal"), operands=1),
    "gtimeout": Wrapper("ks", ("--kill-after", "--signal"), operands=1),
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "disown": Wrapper(),
    "stdbuf": Wrapper("ioe", ("--input", "--output", "--error")),
    "time": Wrapper("fo", ("--format", "--output")),
    "command": Wrapper(),
    "builtin": Wrapper(),
    "exec": Wrapper("a"),
    "coproc": Wrapper(),
    "then": Wrapper(),
    "do": Wrapper(),
    "else": Wrapper(),
    "{": Wrapper(),
    "!": Wrapper(),
    "watch": Wrapper("nq", ("--interval", "--equexit"), joins=True),
    "entr": Wrapper(joins=True),
    "watchexec": Wrapper("efiwdso", joins=True),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "flock": Wrapper("wE", ("--wait", "--timeout", "--conflict-exit-code"), operands=1),
    "chroot": Wrapper("", ("--userspec", "--groups"), operands=1),
    "unshare": Wrapper("SGRw", ("--setuid", "--setgid", "--root", "--wd")),
    "nsenter": Wrapper("tSG", ("--target", "--setuid", "--setgid")),
    "strace": Wrapper("abeEIoOpPsSuUX"),
    "ltrace": Wrapper("aADeFlnopsSuwx"),
    "valgrind": Wrapper(),
    "rlwrap": Wrapper("abcCDefgHlmMNopPqsStTvwz"),
    "caffeinate": Wrapper("tw"),
    "systemd-run": Wrapper("pEutMH", ("--unit", "--property", "--setenv", "--slice", "--on-calendar")),
    "systemd-inhibit": Wrapper("", ("--what", "--who", "--why", "--mode")),
    "firejail": Wrapper(),
    "proxychains": Wrapper("f"),
    "proxychains4": Wrapper("f"),
    "torsocks": Wrapper(),
    "tsocks": Wrapper(),
    "unbuffer": Wrapper(),
    "fakeroot": Wrapper("lsb"),
    "faketime": Wrapper(operands=1),
    "xvfb-run": Wrapper("enfpsw"),
    "dbus-run-session": Wrapper(),
    "numactl": Wrapper("CmNip"),
    "prlimit": Wrapper(),
    "setpriv": Wrapper("", ("--reuid", "--regid", "--groups")),
    "cgexec": Wrapper("g"),
    "daemonize": Wrapper("acelopu"),
    "setarch": Wrapper(operands=1),
    "linux64": Wrapper(),
    "direnv": Wrapper(operands=1, verbs=("exec",)),
    "dotenv": Wrapper(verbs=("run", "--")),
    "doppler": Wrapper(verbs=("run",), after_dashes=True),
    "op": Wrapper(verbs=("run",), after_dashes=True),
    "aws-vault": Wrapper(verbs=("exec",), after_dashes=True),
    "ssh": Wrapper("BbcDEeFIiJLlmOopQRSWw", operands=1, joins=True),
    "sshpass": Wrapper("pfde"),
    "mosh": Wrapper("p", operands=1),
    "autossh": Wrapper("BbcDEeFIiJLlMmOopQRSWw", operands=1, joins=True),
    "dbclient": Wrapper("bciJlLpRW", operands=1, joins=True),
    "pdsh": Wrapper("wxgGlfutM", joins=True),
    "pssh": Wrapper("hHlpoetOxX", joins=True),
    "parallel-ssh": Wrapper("hHlpoetOxX", joins=True),
    "clush": Wrapper("wxgXfutl", joins=True),
    "k3s": Wrapper(),
    "microk8s": Wrapper(),
    "minikube": Wrapper("p"),
    "docker": Wrapper(
        _CONTAINER.values, (), 1, verbs=("run", "exec"), flags="itdPqT", long_flags=_CONTAINER.long_flags
    ),
    "podman": Wrapper("", (), 1, verbs=("run", "exec"), flags="itdPqT", long_flags=_CONTAINER.long_flags),
    "nerdctl": Wrapper("", (), 1, verbs=("run", "exec"), flags="itdPqT", long_flags=_CONTAINER.long_flags),
    "docker-compose": Wrapper(
        "", (), 1, verbs=("run", "exec"), flags="itdPqT", long_flags=_CONTAINER.long_flags
    ),
    "kubectl": Wrapper(verbs=("exec", "run", "debug"), after_dashes=True),
    "oc": Wrapper(verbs=("exec", "rsh"), after_dashes=True),
    "lxc": Wrapper(verbs=("exec",), after_dashes=True),
    "npm": Wrapper(verbs=("exec", "x"), after_dashes=True),
    "npx": Wrapper("pc", ("--package", "--call")),
    "bunx": Wrapper(),
    "uv": Wrapper(
        "p", ("--with", "--python", "--directory", "--project", "--extra", "--group"), verbs=("run",)
    ),
    "conda": Wrapper("np", ("--name", "--prefix"), verbs=("run",)),
    **dict.fromkeys(
        names(
            "poetry pipenv pdm hatch rye bundle mise asdf devbox rbenv pyenv nodenv volta fnm nvm foreman "
            "honcho dotenvx pixi micromamba toolbox ddev opam stack cabal lerna nx"
        ),
        _RUNS,
    ),
    **dict.fromkeys(names("wait-for-it wait-for-it.sh wait-for wait4x teller infisical"), _BEHIND_DASHES),
    **dict.fromkeys(names("xterm konsole alacritty foot kitty gnome-terminal xfce4-terminal"), _TERMINAL),
    **dict.fromkeys(names("apptainer singularity"), Wrapper(operands=1, verbs=("exec",))),
    **dict.fromkeys(names("lockf with-lock-ex envchain setuidgid s6-setuidgid"), Wrapper(operands=1)),
    **dict.fromkeys(
        names("chronic ifne run-one with-contenv shx dbus-launch cross-env flatpak-spawn lima"),
        Wrapper(),
    ),
    "nix": Wrapper(verbs=("-c", "--command")),
    "just": Wrapper(verbs=("-c", "--command")),
    "perf": Wrapper("eoFCptIr", verbs=("stat", "record", "trace")),
    "gdb": Wrapper(verbs=("--args",)),
    "rr": Wrapper(verbs=("record",)),
    "cpulimit": Wrapper("lpePcm"),
    "choom": Wrapper("np"),
    "sandbox-exec": Wrapper("pfnD"),
    "ssh-agent": Wrapper("tOP"),
    "sem": Wrapper("j"),
    "start-stop-daemon": Wrapper(verbs=("--exec", "-x", "--startas", "-a")),
    "proot": Wrapper("rbmqwk"),
    "gcloud": Wrapper(verbs=("ssh",), after_dashes=True),
    "chamber": Wrapper(verbs=("exec",), after_dashes=True),
    "distrobox": Wrapper(verbs=("enter",), after_dashes=True),
    "multipass": Wrapper(verbs=("exec",), after_dashes=True),
    "limactl": Wrapper(operands=1, verbs=("shell",)),
    "docker-machine": Wrapper(operands=1, verbs=("ssh",), joins=True),
    "heroku": Wrapper("ar", verbs=("run",), joins=True),
    "pnpm": Wrapper(verbs=("exec", "dlx")),
    "yarn": Wrapper(verbs=("exec", "dlx"), joins=True),
    "git": Wrapper(verbs=("bisect run",)),
    "screen": Wrapper("ShctTpe"),
    "tmux": Wrapper(
        "ctsnFxye",
        verbs=("new", "new-session", "new-window", "neww", "split-window", "splitw", "respawn-pane"),
        joins=True,
    ),
    "vagrant": Wrapper(verbs=("ssh",), after_dashes=True),
    "dumb-init": Wrapper(),
    "tini": Wrapper(),
    "catchsegv": Wrapper(),
    "eatmydata": Wrapper(),
    "run-parts": Wrapper(),
    "chpst": Wrapper("uUbemdofpcrt"),
    "softlimit": Wrapper("acdflmoprst"),
    "wsl": Wrapper("dui", ("--distribution", "--user", "--cd", "--exec")),
    "winpty": Wrapper(),
    "arch": Wrapper(),
}
