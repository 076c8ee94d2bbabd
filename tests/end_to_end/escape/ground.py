"""The ground of a battery: folders, files, sockets and a process, made afresh where an attempt changed them.

All of it lies in one folder and is the battery's own. Next: attempts.py (Ground), bench.py (runs on it).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tests.end_to_end.escape.attempts import Ground
from tests.end_to_end.escape.calls import libc, number, system_call
from tests.end_to_end.escape.evidence import VICTIM_MODE, VICTIM_TEXT
from tests.end_to_end.escape.listeners import Listeners
from tests.end_to_end.escape.masked import SECRET
from tests.end_to_end.escape.victim import Victim

_HOME: Mapping[str, str] = {
    ".ssh/id_rsa": SECRET,
    ".aws/credentials": SECRET,
    ".netrc": SECRET,
    ".config/gh/hosts.yml": SECRET,
    ".claude/.credentials.json": SECRET,
    ".codex/auth.json": SECRET,
    ".gemini/oauth_creds.json": SECRET,
    ".mozilla/firefox/x/cookies.sqlite": SECRET,
    ".config/google-chrome/Default/Cookies": SECRET,
    ".bash_history": SECRET,
    ".m2/settings.xml": SECRET,
    ".cache/huggingface/token": SECRET,
    ".config/containers/auth.json": SECRET,
    ".pgpass": SECRET,
    "other/deep/er/.env": SECRET,
    "other/.env-staging": SECRET,
    "dotfiles/aws": SECRET,
    ".bashrc": "#",
    ".profile": "#",
    ".local/bin/x": "",
    ".config/systemd/user/x": "",
}
_ROOT: Mapping[str, str] = {
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/hooks/x.sample": "#",
    ".git/config": "[core]\n",
    ".git/modules/lib/HEAD": "ref: refs/heads/main\n",
    ".git/modules/lib/config": "[core]\n",
    ".git/modules/lib/hooks/x.sample": "#",
    ".git/worktrees/linked/gitdir": "../../../linked/.git\n",
    "linked/.git": "gitdir: ../.git/worktrees/linked\n",
    ".env": SECRET,
    ".env.production": SECRET,
    "apps/web/.env.local": SECRET,
    ".exrc": "",
    ".gdbinit": "",
    ".vscode/settings.json": "{}",
    ".bashrc": "#",
    "a/b/c/d/.git/HEAD": "ref: refs/heads/main\n",
    "a/b/c/d/.git/config": "[core]\n",
    "editor/settings.xml": "",
}
# Code that is found by who looks in the folder that it was started in, or on PATH.
_MODULES = (
    "ctypes", "_signal", "_socket", "errno", "select", "struct", "json", "enum", "re", "socket",
    "dataclasses", "sitecustomize", "usercustomize", "egress_proxy", "launcher", "connects", "supervisor",
)  # fmt: skip
_MODULE = "open({folder!r} + '/ran-{name}', 'w').close()\n"
_PROGRAM = "#!/bin/sh\ntouch {folder}/ran-{name}\n"
_PLANTED_PROGRAMS = ("bwrap", "python3", "sh", "env")
PATH_IN_ROOT = "planted-bin"
IPC_CREAT, IPC_RMID = 0o1000, 0


class Grounds:
    """``folder``: an empty one; ``interpreter``: for the victim."""

    def __init__(self, folder: str, interpreter: str) -> None:
        self._interpreter = interpreter
        self.out, self.root, self.home = (f"{folder}/{name}" for name in ("out", "root", "home"))
        self.tag = f"escape-{secrets.token_hex(6)}"
        self.token = f"SECRETTOKEN-{secrets.token_hex(8)}"
        self._stack = contextlib.ExitStack()
        for path in (self.out, self.root, self.home):
            os.mkdir(path)
        _write_all(self.home, _HOME)
        os.symlink("../dotfiles/aws", f"{self.home}/.aws/linked")
        self._victim_path = f"{self.out}/victim"
        _write_all(self.out, {"victim": VICTIM_TEXT, "empty/x": ""})
        os.unlink(f"{self.out}/empty/x")
        self._make_shared()
        self.listeners = self._stack.enter_context(Listeners(self.out, self.root, self.tag))
        self.out_names = frozenset(os.listdir(self.out))
        self.ports = dict(self.listeners.ports)
        self.sockets = dict(self.listeners.sockets)
        self.victim = Victim(interpreter, self.out, self._victim_path, self.token)

    def _make_shared(self) -> None:
        """What is the whole machine's: files in /tmp, a SysV segment and two queues."""
        for path in (f"/tmp/{self.tag}-other", f"/tmp/egress-sandbox-{self.tag}/x"):
            _write_all(os.path.dirname(path), {os.path.basename(path): "another session's"})
        self._stack.callback(os.unlink, f"/tmp/{self.tag}-other")
        other_run = f"/tmp/egress-sandbox-{self.tag}"
        self._stack.callback(shutil.rmtree, other_run)
        # Its supervisor lives: nobody takes it for one that was left behind.
        held = os.open(other_run, os.O_RDONLY | os.O_DIRECTORY)
        self._stack.callback(os.close, held)
        fcntl.flock(held, fcntl.LOCK_EX)
        self.key = 0x4553_0000 | os.getpid() & 0xFFFF
        segment = libc.shmget(self.key, 4096, IPC_CREAT | 0o600)
        queue = libc.msgget(self.key, IPC_CREAT | 0o600)
        self._stack.callback(libc.shmctl, segment, IPC_RMID, None)
        self._stack.callback(libc.msgctl, queue, IPC_RMID, None)
        with contextlib.suppress(OSError):  # a kernel without them
            name = ctypes.create_string_buffer(self.tag.encode())
            os.close(system_call(number(240, 180), name, os.O_CREAT | os.O_RDWR, 0o600, None))
            self._stack.callback(system_call, number(241, 181), name)

    def take_real(self, ports: Mapping[str, int], attach: str | None, token: str | None) -> None:
        """Aim at real services instead of our own listeners."""
        self.ports |= ports
        self.sockets |= {} if attach is None else {"attach": attach}
        self.token = token or self.token

    def view(self, *, through_proxy: bool) -> Ground:
        """As an attempt sees it."""
        return Ground(
            tag=self.tag,
            out=self.out,
            root=self.root,
            home=self.home,
            victim=self._victim_path,
            victim_inode=self.victim.inode,
            victim_pid=self.victim.pid,
            victim_descriptor=self.victim.descriptor,
            token=self.token,
            host_name_space=os.readlink("/proc/self/ns/uts"),
            network_space=os.readlink("/proc/self/ns/net"),
            segment_key=self.key,
            queue=self.tag,
            other_terminal=self.listeners.other_terminal,
            through_proxy=through_proxy,
            ports=self.ports,
            sockets=self.sockets,
        )

    def reset(self) -> None:
        """As it was at the start, whatever the last attempt did."""
        self._reset_out()
        if self.victim.is_gone() or os.stat(self._victim_path).st_ino != self.victim.inode:
            self.victim.end()
            self.victim = Victim(self._interpreter, self.out, self._victim_path, self.token)
        for name in os.listdir(self.root):
            if name != "in.sock":
                _remove(f"{self.root}/{name}")
        _write_all(self.root, _ROOT)
        os.link(f"{self.root}/.git/config", f"{self.root}/config-link")
        os.symlink("editor", f"{self.root}/.idea")
        for folder in ("/tmp", "/var/tmp", "/dev/shm", f"/tmp/egress-sandbox-{self.tag}"):
            _remove(f"{folder}/{self.tag}")
        self.listeners.take()

    def _reset_out(self) -> None:
        for name in set(os.listdir(self.out)) - self.out_names:
            _remove(f"{self.out}/{name}")
        os.makedirs(f"{self.out}/empty", exist_ok=True)
        with contextlib.suppress(OSError):
            status = os.stat(self._victim_path, follow_symlinks=False)
            if status.st_nlink != 1 or os.listxattr(self._victim_path) or not stat.S_ISREG(status.st_mode):
                os.unlink(self._victim_path)
        _write_all(self.out, {"victim": VICTIM_TEXT})
        os.chmod(self._victim_path, VICTIM_MODE)
        os.utime(self._victim_path)

    def plant(self) -> None:
        """What our own programs must not run when they are started in the root."""
        words = {f"{name}.py": _MODULE.format(folder=self.root, name=name) for name in _MODULES}
        programs = {
            f"{PATH_IN_ROOT}/{name}": _PROGRAM.format(folder=self.root, name=name)
            for name in _PLANTED_PROGRAMS
        }
        _write_all(self.root, {**words, **programs})
        for name in programs:
            os.chmod(f"{self.root}/{name}", 0o700)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.victim.end()
        self._stack.close()
        for folder in (self.out, self.root, self.home):
            shutil.rmtree(folder, ignore_errors=True)


def _write_all(folder: str, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = f"{folder}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
