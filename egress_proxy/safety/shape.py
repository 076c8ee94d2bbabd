"""One spelling for the many of a command: `name OPTIONS -- OPERANDS`, what built-in rules match.

Bundled flags parted, long ones shortened, all sorted; paths without detours; blanks inside a word
are tabs. Tables of options, no danger. Next: builtin_rules.py (matches), classify.py.
"""

import fnmatch
import re
from collections.abc import Sequence

from egress_proxy.safety.inner import program_of
from egress_proxy.safety.quoting import path_of
from egress_proxy.safety.values import Command, names

_LONG: dict[str, dict[str, str]] = {
    "rm": {"--recursive": "-r", "-R": "-r", "--force": "-f", "--dir": "-d", "--verbose": "-v"},
    "git": {
        "--force": "-f",
        "--delete": "-d",
        "--hard": "--hard",
        "--mirror": "--mirror",
        "--merge": "--merge",
        "--discard-changes": "-f",
        "--prune": "--prune",
    },
    "chmod": {"--recursive": "-R"},
    "chown": {"--recursive": "-R"},
    "chgrp": {"--recursive": "-R"},
    "shred": {"--remove": "-u"},
}
_SPLIT = frozenset({*_LONG, "su", "umount", "crontab", "nc", "ncat", "netcat", "usermod", "killall", "pkill"})
# Options before the verb that take the next word.
_GLOBAL_VALUES: dict[str, frozenset[str]] = {
    "git": frozenset(
        {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix"}
    ),
    "docker": frozenset(
        {"-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "-f", "--file", "-p"}
    ),
    "kubectl": frozenset(
        {"-n", "--namespace", "--context", "--kubeconfig", "--cluster", "--user", "-s", "-l", "-o"}
    ),
    "aws": frozenset({"--profile", "--region", "--output", "--endpoint-url"}),
    "gcloud": frozenset({"--project", "--account", "--zone", "--region", "--format"}),
    "npm": frozenset({"--prefix", "-w", "--workspace"}),
    "helm": frozenset({"-n", "--namespace", "--kube-context", "--kubeconfig"}),
    "redis-cli": frozenset(
        {"-h", "-p", "-a", "-n", "-u", "-s", "-r", "-i", "--user", "--pass", "--cacert", "--cert", "--key"}
    ),
    "mysql": frozenset({"-h", "-u", "-P", "-S", "-D"}),
    "psql": frozenset({"-h", "-U", "-p", "-d"}),
}
# Of these the same holds behind the verb.
_VALUES_ANYWHERE = frozenset({"kubectl", "aws", "gcloud", "helm"})
_PATHS = names(
    "rm mv cp chmod chown chgrp rsync shred rmdir unlink ln srm trash install truncate umount mkfs "
    "setfacl chattr"
)
# Filled again by the programs that own them: removing one is told as that of a relative folder.
_CACHE = re.compile(
    r"/var/(?:lib/apt/lists|cache/(?:apt|apk|dnf|yum|pacman/pkg)(?:/archives)?)(?:/.*)?|"
    r"(?:~|/root|/home/[^/]+)/(?:\.cache|\.npm/_cacache|\.npm/_logs|\.gradle/caches|\.ccache|\.pnpm-store|\.nuget/packages|"
    r"Library/Caches|go/pkg/mod|\.cargo/registry|\.yarn/cache)(?:/[^*]*)?"
)
_SYSTEM = names("bin boot dev etc home lib lib64 root sbin sys usr var")
_MAX_PATTERN = 32  # fnmatch takes time that grows with the square of a pattern
_ASKED = frozenset({"sudo", "su", "doas", "pkexec", "sudoedit", "runuser"})
_DRY = ("--dry-run", "--dryrun", "--simulate", "--no-act")
# Some of these take `--help` behind an operand for one more operand, or give it to what they run.
_OPERANDS_FIRST = (
    _PATHS | _ASKED | names("nsenter chroot capsh machinectl setpriv systemd-run crontab mkswap")
)
_BLANK = re.compile(r"\s")
_SHORTEST_PREFIX = 5  # `--rec` and longer; GNU getopt takes any that is not ambiguous


def shape_of(command: Command) -> str:
    words = command.words
    if not words:
        return ""
    program = program_of(words[0].text) or words[0].text
    family = "docker" if program in ("docker-compose", "podman", "nerdctl") else program
    options, operands = _parted(family, [word.text for word in words[1:]])
    if program == "docker-compose":
        operands.insert(0, "compose")
    if family in _PATHS or family.startswith("mkfs."):
        operands = [_found(path_of(operand, command.folder)) for operand in operands]
    if family == "rm":
        operands = ["cache" if _CACHE.fullmatch(operand) else operand for operand in operands]
    if _is_dry(family, options, operands):
        family += ".dry-run"
    shape = [family, *sorted(set(options)), "--", *operands]
    return " ".join(_BLANK.sub("\t", part) for part in shape)


def _found(path: str) -> str:
    """`/et*`: the system's folder that the pattern finds."""
    pattern = path[1:]
    is_pattern = path[:1] == "/" and pattern.strip("*") and any(mark in pattern for mark in "*?[")
    if not is_pattern or "/" in pattern or len(pattern) > _MAX_PATTERN:
        return path
    return next((f"/{name}" for name in sorted(_SYSTEM) if fnmatch.fnmatchcase(name, pattern)), path)


def _is_dry(program: str, options: Sequence[str], operands: Sequence[str]) -> bool:
    """It only shows what it would do, or changes the index alone."""
    if program in _ASKED and not operands:
        return bool(options) and {"-V", "--version", "--help"}.issuperset(options)
    if program == "git" and operands[:1] == ["restore"]:
        return bool({"-S", "--staged"} & set(options)) and not {"-W", "--worktree", "-SW", "-WS"} & set(
            options
        )
    if options == ["--version"] and not operands:
        return True
    is_asked = bool({"--help", "-help"} & set(options)) or (program == "aws" and operands[-1:] == ["help"])
    if is_asked and program not in _OPERANDS_FIRST and not {"run", "exec"} & set(operands[:2]):
        return True
    told = any(o.startswith(_DRY) and not o.endswith(("=none", "=false")) for o in options)
    return told or (program in ("git", "rsync") and "-n" in options)


def _parted(program: str, texts: Sequence[str]) -> tuple[list[str], list[str]]:
    options: list[str] = []
    operands: list[str] = []
    values = _GLOBAL_VALUES.get(program, frozenset())
    at = 0
    while at < len(texts):
        text = texts[at]
        at += 1
        if text == "--":
            return options, operands + list(texts[at:])
        if not text.startswith("-") or text == "-":
            operands.append(text)
        elif text in values and (not operands or program in _VALUES_ANYWHERE):
            options.append(f"{text}={texts[at] if at < len(texts) else ''}")
            at += 1
        else:
            options += _canonical(program, text)
    return options, operands


def _canonical(program: str, text: str) -> list[str]:
    longs = _LONG.get(program, {})
    if text.startswith("--"):
        return [_shortened(longs, text)]
    if program in _SPLIT and len(text) > 2 and text not in ("-KILL", "-SIGKILL"):
        letters = (f"-{letter}" for letter in text[1:])
        return [longs.get(letter, letter) for letter in letters]
    return [longs.get(text, text)]


def _shortened(longs: dict[str, str], text: str) -> str:
    name = text.partition("=")[0]
    if name in longs:
        return longs[name]
    if len(name) >= _SHORTEST_PREFIX:
        for long, short in longs.items():
            if long.startswith(name):
                return short
    return text
