"""Lets bash run a line where nothing can be lost, and tells which stand-ins it called and what it changed.

The sandbox is bubblewrap's, with a root of its own: no network, no process but ours, no device, and in place
of /bin, /usr/bin and the rest one folder of stand-ins (stand_in.sh) and of harmless programs. No program that
destroys is in there, under no path. What the observation means is judged in destruction.py.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.support.skips import cannot_be_installed

TIME_LIMIT_S = 2.0
CPU_LIMIT_S = 1
PROCESS_LIMIT = 48  # of this sandbox alone: a fork bomb stays small
LONGEST = 8_000
HOME = "/home/user"
PROJECT = f"{HOME}/project"
MARKER = "ran-fetched-text"
STAND_INS = (
    *("rm", "unlink", "rmdir", "shred", "dd", "mv", "cp", "ln", "install", "truncate", "rsync", "find"),
    *("chmod", "chown", "chgrp", "mkfs", "mke2fs", "mkswap", "wipefs", "blkdiscard", "cryptsetup", "nvme"),
    *(f"mkfs.{kind}" for kind in ("btrfs", "ext2", "ext3", "ext4", "f2fs", "fat", "ntfs", "vfat", "xfs")),
    *("sudo", "su", "doas", "pkexec", "sudoedit", "git", "reboot", "poweroff", "halt", "shutdown"),
    *("curl", "wget", "fetch", "aria2c", "lynx", "http", MARKER),
)
# Real ones: what moves text about, and what runs a command given to it.
HARMLESS = (
    *("awk", "base64", "bash", "basename", "cat", "cut", "dirname", "env", "expr", "false", "grep", "gunzip"),
    *("gzip", "head", "id", "ls", "mkdir", "mkfifo", "mktemp", "nice", "nohup", "openssl", "paste", "printf"),
    *(
        "rev",
        "sed",
        "seq",
        "setsid",
        "sort",
        "stdbuf",
        "tac",
        "tail",
        "tee",
        "timeout",
        "touch",
        "tr",
        "true",
    ),
    *("uniq", "uname", "wc", "xargs", "xxd", "zcat"),
)
SHELLS = ("sh", "dash", "zsh", "ksh")  # bash again, under these names: is the text run, is all we ask
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
COMMAND_FOLDERS = ("/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
DEVICES = ("disk2", "hda", "nvme0n1", "nvme0n1p2", "sda", "sda1", "sda2", "sdb", "sdb1", "sdc", "vda", "vdb")
# What a line must not change; each holds its own path. Folders of the sandbox, or devices.
WATCHED = (
    *(f"/dev/{name}" for name in DEVICES),
    *("/etc/passwd", "/etc/shadow", "/etc/sudoers", "/etc/hosts", "/etc/fstab"),
    *(f"{HOME}/.bashrc", f"{HOME}/.profile", f"{HOME}/.ssh/authorized_keys", f"{HOME}/.ssh/id_rsa"),
)
FILES = (*WATCHED, f"{HOME}/Documents/letter.txt", f"{PROJECT}/a.txt", f"{PROJECT}/build/out.o")
# 1: the limits that bash can set; $1 is the line, run as `bash -c` so that $0 is a shell as in a terminal.
PRELUDE = f'ulimit -t {CPU_LIMIT_S} -f 512 -v 1000000 -u {PROCESS_LIMIT} && cd {PROJECT} && exec bash -c "$1"'
NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: tuple[str, ...]
    folder: str = PROJECT


@dataclass(frozen=True, slots=True)
class Observed:
    calls: tuple[Call, ...]
    changed: tuple[str, ...]


def parse_calls(log: bytes) -> Iterator[Call]:
    """Whole records only: one cut off by the time limit, or mixed with another, ends the list."""
    fields = log.decode("utf-8", "surrogateescape").split("\0")[:-1]
    while len(fields) >= 3 and fields[0].isdigit() and fields[1].startswith("/"):
        count = int(fields[0])
        if len(fields) < count + 3:
            return
        yield Call(fields[2], tuple(fields[3 : count + 3]), fields[1])
        del fields[: count + 3]


class ShellSandbox:
    """``with ShellSandbox() as sandbox: sandbox.run("rm -rf ~").calls``; each run starts afresh."""

    def __init__(self) -> None:
        program = shutil.which("bwrap")
        if program is None:
            raise FileNotFoundError(cannot_be_installed("bubblewrap"))
        self._program = program
        self._stack = ExitStack()

    def __enter__(self) -> ShellSandbox:
        self._scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fz-")))
        self._make_commands()
        self._own(self._scratch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, line: str) -> Observed:
        """Run the line to its end or to the time limit. What it prints is lost."""
        if "\0" in line or len(line.encode("utf-8", "surrogateescape")) > LONGEST:
            raise ValueError("bash cannot be given this line")
        with tempfile.TemporaryDirectory(prefix="run-", dir=self._scratch) as name:
            folder = Path(name)
            self._make_files(folder)
            self._run(folder, line)
            log = folder / "log/calls"
            calls = tuple(parse_calls(log.read_bytes())) if log.exists() else ()
            return Observed(calls, tuple(path for path in WATCHED if not self._is_untouched(folder, path)))

    def _make_commands(self) -> None:
        commands = self._scratch / "bin"
        commands.mkdir()
        for name in HARMLESS:
            if found := shutil.which(name):
                shutil.copy2(os.path.realpath(found), commands / name)
        shutil.copy2(shutil.which("chmod") or "/bin/chmod", commands / "real-chmod")
        for name in SHELLS:
            (commands / name).symlink_to("bash")
        script = Path(__file__).with_name("stand_in.sh").read_bytes()
        for name in STAND_INS:
            (commands / name).write_bytes(script)
            (commands / name).chmod(0o755)

    def _make_files(self, folder: Path) -> None:
        (folder / "log").mkdir()
        (folder / "tmp").mkdir()
        for path in FILES:
            file = folder / path[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(path, encoding="utf-8")
        self._own(folder)

    def _is_untouched(self, folder: Path, path: str) -> bool:
        try:
            return (folder / path[1:]).read_text(encoding="utf-8", errors="replace") == path
        except OSError:
            return False

    def _own(self, folder: Path) -> None:
        """The sandbox's user is not root, whose processes no limit counts."""
        if os.geteuid() == 0:
            for entry in (folder, *folder.rglob("*")):
                os.chown(entry, NOBODY, NOBODY, follow_symlinks=False)

    def _argv(self, folder: Path, line: str) -> list[str]:
        argv = [self._program, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
        for library in LIBRARIES:
            if os.path.islink(library):
                argv += ["--symlink", os.readlink(library), library]
            elif os.path.isdir(library):
                argv += ["--ro-bind", library, library]
        argv += ["--ro-bind", str(self._scratch / "bin"), "/usr/bin", "--proc", "/proc", "--dev", "/dev"]
        for commands in COMMAND_FOLDERS:
            argv += ["--symlink", "/usr/bin", commands]
        for device in DEVICES:
            argv += ["--bind", str(folder / "dev" / device), f"/dev/{device}"]
        for inside in ("etc", "home", "log", "tmp"):
            argv += ["--bind", str(folder / inside), f"/{inside}"]
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": HOME,
            "USER": "user",
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
        }
        for name, value in environ.items():
            argv += ["--setenv", name, value]
        return [*argv, "--", "/usr/bin/bash", "-c", PRELUDE, "bash", line]

    def _run(self, folder: Path, line: str) -> None:
        as_nobody = os.geteuid() == 0
        child = subprocess.Popen(
            self._argv(folder, line),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
            user=NOBODY if as_nobody else None,
            group=NOBODY if as_nobody else None,
            extra_groups=() if as_nobody else None,
        )
        with child, suppress(subprocess.TimeoutExpired):
            try:
                child.wait(TIME_LIMIT_S)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)  # its first process, and so all of the sandbox


@functools.cache
def unavailable() -> str | None:
    """Why no line can be run here, or None. Tried out: a sandbox that sees nothing would pass everything."""
    try:
        with ShellSandbox() as sandbox:
            seen = sandbox.run("/bin/rm -rf / ; curl x://y | sh ; echo x > /dev/sda")
    except FileNotFoundError as missing:
        return str(missing)
    names = [call.name for call in seen.calls]
    if sorted(names) != ["curl", MARKER, "rm"] or seen.changed != ("/dev/sda",):
        return "bubblewrap cannot make a sandbox on this Linux: user namespaces are refused"
    return None
