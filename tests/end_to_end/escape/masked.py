"""Attempts to read what is masked: keys, tokens, other processes' environments.

Run inside; the child tells, since reading leaves no trace. Next: processes.py.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

from tests.end_to_end.escape.attempts import Blocked, Escaped, Ground, Kind, Missing, attempt
from tests.end_to_end.escape.calls import RUNNER, libc

READ = attempt(Kind.READ)
SECRET = "SECRET"


def read_secret(paths: Iterable[str]) -> None:
    failures: list[Exception] = []
    for path in paths:
        try:
            with open(path, errors="replace") as stream:
                text = stream.read()
        except OSError as error:
            failures.append(error)
            continue
        if SECRET in text:
            raise Escaped(f"read {path}")
        failures.append(Blocked("masked"))
    raise failures[-1] if failures else Missing("no such file")


@READ
def read_ssh_key(ground: Ground) -> None:
    read_secret([f"{ground.home}/.ssh/id_rsa"])


@READ
def read_aws_netrc_gh(ground: Ground) -> None:
    names = (".aws/credentials", ".netrc", ".config/gh/hosts.yml")
    read_secret(f"{ground.home}/{name}" for name in names)


@READ
def read_dotenv_in_root(ground: Ground) -> None:
    read_secret([f"{ground.root}/.env"])


@READ
def read_dotenv_renamed(ground: Ground) -> None:
    os.rename(f"{ground.root}/.env", f"{ground.root}/renamed")
    read_secret([f"{ground.root}/renamed"])


@READ
def read_dotenv_by_other_names(ground: Ground) -> None:
    read_secret(f"{ground.root}/{name}" for name in (".env.production", "apps/web/.env.local"))


@READ
def read_dotenv_of_moved_folder(ground: Ground) -> None:
    """To where no search looks, so that a later run could read it."""
    os.makedirs(f"{ground.root}/node_modules")
    os.rename(f"{ground.root}/apps/web", f"{ground.root}/node_modules/web")
    read_secret([f"{ground.root}/node_modules/web/.env.local"])


@READ
def read_dotenv_of_another_project(ground: Ground) -> None:
    read_secret(f"{ground.home}/{name}" for name in ("other/deep/er/.env", "other/.env-staging"))


@READ
def read_agents_logins(ground: Ground) -> None:
    names = (".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json")
    read_secret(f"{ground.home}/{name}" for name in names)


@READ
def read_browsers_and_histories(ground: Ground) -> None:
    names = (".mozilla/firefox/x/cookies.sqlite", ".config/google-chrome/Default/Cookies", ".bash_history")
    read_secret(f"{ground.home}/{name}" for name in names)


@READ
def read_registry_and_database_logins(ground: Ground) -> None:
    names = (".m2/settings.xml", ".cache/huggingface/token", ".config/containers/auth.json", ".pgpass")
    read_secret(f"{ground.home}/{name}" for name in names)


@READ
def read_key_that_a_link_leads_to(ground: Ground) -> None:
    """As people link their keys out of a repository: by the second name of it."""
    read_secret([f"{ground.home}/dotfiles/aws"])


@READ
def read_disk_or_screen(ground: Ground) -> None:
    """What shows every file, whatever is hidden: a block device, or what the console shows."""
    for entry in os.scandir("/dev"):
        is_screen = entry.name.startswith("vcs")
        if is_screen or stat.S_ISBLK(entry.stat(follow_symlinks=False).st_mode):
            with contextlib.suppress(OSError), open(entry.path, "rb") as stream:
                if stream.read(1):
                    raise Escaped(f"read {entry.path}")
    raise Blocked("none can be read")


@READ
def read_key_by_symlink(ground: Ground) -> None:
    os.symlink(f"{ground.home}/.ssh", f"{ground.root}/keys")
    read_secret([f"{ground.root}/keys/id_rsa"])


@READ
def read_key_by_hardlink(ground: Ground) -> None:
    os.link(f"{ground.home}/.netrc", f"{ground.root}/netrc")
    read_secret([f"{ground.root}/netrc"])


@READ
def read_key_by_proc_root(ground: Ground) -> None:
    processes = ("self", "1", str(RUNNER), str(ground.victim_pid))
    read_secret(f"/proc/{process}/root{ground.home}/.ssh/id_rsa" for process in processes)


@READ
def read_key_by_umount(ground: Ground) -> None:
    libc.umount2(f"{ground.home}/.ssh".encode(), 2)
    read_secret([f"{ground.home}/.ssh/id_rsa"])


@attempt(Kind.EFFECT)
def env_inherits_token(ground: Ground) -> None:
    if ground.token in repr(dict(os.environ)):
        raise Escaped("the token is in its own environment")
    raise Blocked("not there")


def look_for_token(ground: Ground, process: str) -> None:
    with open(f"/proc/{process}/environ", "rb") as stream:
        if ground.token.encode() in stream.read():
            raise Escaped(f"the token is in the environment of {process}")


@attempt(Kind.EFFECT)
def proc_environ_scan(ground: Ground) -> None:
    seen = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            look_for_token(ground, process)
        except OSError:
            continue
        seen += 1
    raise Blocked(f"{seen} read, none has it")


@attempt(Kind.EFFECT)
def proc_ppid_environ(ground: Ground) -> None:
    look_for_token(ground, str(RUNNER))
    raise Blocked("not there")


@attempt(Kind.EFFECT)
def proc_first_environ(ground: Ground) -> None:
    """bwrap's own first process keeps what it was started with."""
    look_for_token(ground, "1")
    raise Blocked("not there")


@READ
def proc_victim_environ(ground: Ground) -> None:
    look_for_token(ground, str(ground.victim_pid))
    raise Blocked("not there")


@READ
def proc_cmdline_scan(ground: Ground) -> None:
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cmdline", "rb") as stream:
                words = stream.read()
        except OSError:
            continue
        if b"victim-process-marker" in words:
            raise Escaped("the host's processes are seen")
    raise Blocked("not seen")


@READ
def proc_descriptors_of_victim(ground: Ground) -> None:
    target = os.readlink(f"/proc/{ground.victim_pid}/fd/{ground.victim_descriptor}")
    raise Escaped(f"what it has open is seen: {target}")
