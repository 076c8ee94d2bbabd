"""What a confined command must not read: keys and tokens in the homes, .env files, what was named.

Looks at the file system and changes nothing. Next: secret_places.py and env_files.py (the names), terrain.py
(searches once, for all who need it), bwrap.py and landlock_rung.py (hide it).
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from egress_proxy.sandbox.env_files import ENV_FILES_LIMIT, NOT_ENTERED_IN_A_HOME, search
from egress_proxy.sandbox.git_tokens import token_in, user_configs
from egress_proxy.sandbox.mounts import MountPoint, other_places, read_mounts, slow_mounts
from egress_proxy.sandbox.protected import Scan
from egress_proxy.sandbox.real_path import real_path
from egress_proxy.sandbox.roots import is_below, is_in
from egress_proxy.sandbox.secret_places import SECRET_NAMES
from egress_proxy.sandbox.spec import NO_FILES, SandboxSpec, ThroughProxy
from egress_proxy.sandbox.tracked import is_tracked

_LINKS_LIMIT = 256  # entries of a secret folder that are looked at for links
# A link into these leads to a program or a socket, and hides nothing.
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/etc",
    "/dev",
    "/proc",
    "/sys",
    "/run",
    "/nix",
    "/opt",
    "/boot",
)
OLD_PROXY = "attach.first-version:secrets-of-the-proxy"
EARLY, TOKENS, MOUNTS = (
    "masks.search-limit:env-files",
    "git.config:tokens",
    "masks.unknown-mounts:second-places",
)


@dataclass(frozen=True, slots=True)
class Masked:
    """``paths``: after symbolic links, each wherever it can be seen; none lies below another.
    ``open``: reasons why secrets may be readable all the same."""

    paths: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


def masked_of(spec: SandboxSpec, scans: Sequence[Scan]) -> Masked:
    """``scans``: of the spec's roots."""
    own = spec.egress.own if isinstance(spec.egress, ThroughProxy) else NO_FILES
    named = list(map(os.path.realpath, (*spec.masks, *(own.secret if own else ()))))
    if not (spec.mask_secrets or named or own is None):
        return Masked()
    mounts = read_mounts()
    found, reasons = _secrets(spec, scans, mounts) if spec.mask_secrets else ([], [])
    paths = {*named, *_without(found, tuple(map(os.path.realpath, spec.unmasked)))}
    if own is None:
        reasons.append(OLD_PROXY)
    if not mounts:
        reasons.append(MOUNTS)
    paths |= {place for place in other_places(paths, mounts) if not _is_needed(place, spec)}
    return Masked(_outermost(paths), tuple(reasons))


def _secrets(
    spec: SandboxSpec, scans: Sequence[Scan], mounts: Sequence[MountPoint]
) -> tuple[list[str], list[str]]:
    """Paths, and reasons why there may be more."""
    places = [path for path in _places(spec.homes) if not _is_needed(path, spec)]
    elsewhere = search(
        (*_current(spec), *spec.homes),
        {*spec.roots, *places, *slow_mounts(mounts)},
        not_entered=NOT_ENTERED_IN_A_HOME,
    )
    spelt = dict.fromkeys([*(path for one in scans for path in one.env_files), *elsewhere.paths])
    real = dict.fromkeys(map(os.path.realpath, spelt))
    env_files = [
        path for path in real if _is_secret_file(path) and not is_in(path, _SYSTEM) and not is_tracked(path)
    ]
    reasons = []
    complete = elsewhere.complete and all(one.env_complete for one in scans)
    if not complete or len(env_files) > ENV_FILES_LIMIT:
        reasons.append(EARLY)
    obeyed = (path for one in scans for path in one.obeyed if path.endswith("/config"))
    if any(map(token_in, (*user_configs(spec.homes, spec.cwd), *elsewhere.configs, *obeyed))):
        reasons.append(TOKENS)
    return places + env_files[:ENV_FILES_LIMIT], reasons


def _current(spec: SandboxSpec) -> tuple[str, ...]:
    """The folder that the command starts in, unless that is the system's."""
    cwd = real_path(spec.cwd or os.curdir)
    return () if cwd == "/" or is_in(cwd, _SYSTEM) or is_in(cwd, spec.roots) else (cwd,)


def _places(homes: Iterable[str]) -> Iterator[str]:
    """What is there of the secret places, with what the links lead to that lie in them."""
    real = dict.fromkeys(real_path(path) for home in homes for path in present(home))
    for path in real:
        if os.path.isdir(path):
            yield path
            yield from _led_to(path)
        elif _is_secret_file(path):
            yield path


def present(home: str) -> Iterator[str]:
    """As they are spelt. One look into each folder costs less than one for each name."""
    listed: dict[str, frozenset[str]] = {}
    for name in SECRET_NAMES:
        folder, _, last = f"{home}/{name}".rpartition("/")
        if folder not in listed:
            listed[folder] = _names_in(folder)
        if last in listed[folder]:
            yield f"{folder}/{last}"


def _names_in(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _led_to(folder: str) -> Iterator[str]:
    """As people link `~/.aws/credentials` out of a repository: it is read there as well."""
    folders, seen = [folder], 0
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            seen += 1
            if seen > _LINKS_LIMIT:
                return
            if entry.is_symlink():
                target = real_path(entry.path)
                if not is_in(target, _SYSTEM) and (os.path.isdir(target) or _is_secret_file(target)):
                    yield target
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)


def _is_needed(path: str, spec: SandboxSpec) -> bool:
    """Whether hiding a folder would hide a place to work in. A root in a secret folder was forced."""
    needed = (*spec.roots, *spec.homes, *([spec.cwd] if spec.cwd else []))
    return path == "/" or any(place == path or is_below(place, path) for place in needed)


def _is_secret_file(path: str) -> bool:
    """Pipes too, as password stores make them. Not a device: people link such names to /dev/null."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def _without(paths: Iterable[str], unmasked: Sequence[str]) -> Iterator[str]:
    """A folder with something in it that may be read is hidden as all of its other entries."""
    for path in paths:
        if is_in(path, unmasked):
            continue
        if any(is_below(one, path) for one in unmasked):
            yield from _without((f"{path}/{name}" for name in _names_in(path)), unmasked)
        else:
            yield path


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Sorted, a folder before what is in it: nothing can be mounted in what is empty by then."""
    kept: list[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not (kept and (kept[-1] == path or is_below(path, kept[-1]))):
            kept.append(path)
    return tuple(kept)
