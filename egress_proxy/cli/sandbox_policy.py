"""Flags to a SandboxSpec: roots resolved and judged, hosts parsed, the proxy asked for its port.

Next: sandbox_verb.py and run.py (use it), sandbox/spec.py (the result).
"""

import argparse
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence

from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.module_search import warn_of_writable_folder
from egress_proxy.cli.output import say
from egress_proxy.cli.sandbox_arguments import EVERYTHING
from egress_proxy.core.attach_place import default_path
from egress_proxy.core.rules import RuleError
from egress_proxy.sandbox.bwrap import OWN_FOLDERS
from egress_proxy.sandbox.egress_choice import egress_of, through_proxy
from egress_proxy.sandbox.host_list import Endpoint, read_host_list
from egress_proxy.sandbox.roots import (
    LIFTED_BY,
    RootRefused,
    canonical_roots,
    homes,
    is_below,
    is_in,
    links_to,
    outermost,
)
from egress_proxy.sandbox.spec import Egress, NoNetwork, OpenNetwork, SandboxSpec
from egress_proxy.sandbox.started_from import started_from

ATTACH_VARIABLE = "EGRESS_ATTACH"
_MASKED_SHOWN = 5  # names in the one line about masks


# What hosts keep in a folder of theirs that they make writable: a yes that the command wrote there itself
# would be nobody's.
_HOST_FILES = (".steerable/approvals.json", ".steerable/config.json")


def host_files(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Read-only for the command, where they lie in a root."""
    return tuple(
        os.path.realpath(os.path.join(home, name)) for home in homes(home_of(environ)) for name in _HOST_FILES
    )


def shown_of(arguments: argparse.Namespace, roots: tuple[str, ...]) -> tuple[str, ...]:
    """The folders and files of --ro, by their real paths. Raises VerbFailed, which names the one."""
    shown = []
    for named in getattr(arguments, "ro", ()):
        try:
            path = os.path.realpath(named, strict=True)
        except OSError as error:
            why = f"{named!r} cannot be shown: {(error.strerror or str(error)).lower()}"
            raise VerbFailed(ExitCode.USAGE, f"--ro: {why}; name what is there") from None
        if path in OWN_FOLDERS:
            raise VerbFailed(ExitCode.USAGE, f"--ro: the sandbox has a {path} of its own; name what is in it")
        if is_in(path, roots):
            raise VerbFailed(
                ExitCode.USAGE, f"--ro: {named!r} lies in a writable root; name only one of them"
            )
        shown.append(path)
    return tuple(shown)


def spec_of(arguments: argparse.Namespace, environ: Mapping[str, str]) -> SandboxSpec:
    """Raises VerbFailed; SandboxUnavailable when no proxy answers where one is named."""
    roots = roots_of(arguments.writable_root, arguments.dangerously_writable_root, environ)
    return SandboxSpec(
        roots=roots,
        shown=shown_of(arguments, roots),
        egress=_egress(arguments, environ),
        cwd=None,  # where what is printed is spawned, which is somebody else's to say
        homes=homes(home_of(environ)),
        mask_secrets=EVERYTHING not in arguments.no_mask,
        masks=tuple(map(os.path.abspath, arguments.mask)),
        unmasked=tuple(map(os.path.abspath, arguments.no_mask)),
        protected=host_files(environ),
    )


def roots_of(
    usual: list[str], forced: list[str], environ: Mapping[str, str], lifted_by: str = LIFTED_BY
) -> tuple[str, ...]:
    """Both kinds of roots, in one list. Raises VerbFailed, which names the root; ``lifted_by``: the flag for
    the second kind, as the verb spells it."""
    try:
        return outermost((*_usual_roots(usual, environ), *canonical_roots(forced, forced=True)))
    except RootRefused as error:
        raise VerbFailed(ExitCode.USAGE, str(error).replace(LIFTED_BY, lifted_by)) from None


def tell_of_roots(paths: Iterable[str], bare_module: str | None) -> None:
    """Once all was judged: before an error there is no other line. ``bare_module``: we were started as
    `python -m` this, without -P or -I."""
    named = tuple(paths)
    for path in named:
        if next(links_to(os.path.abspath(path)), None) is not None:
            say(f"writable root {path} is {os.path.realpath(path)}")
    if bare_module:
        warn_of_writable_folder(named, bare_module)


def may_be_root(folder: str, environ: Mapping[str, str]) -> bool:
    """Whether `--rw` would take it: what is refused is not proposed either."""
    try:
        return bool(_usual_roots([folder], environ))
    except RootRefused:
        return False


def _usual_roots(paths: list[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Raises RootRefused."""
    attach = attach_path(environ)
    own = (*own_folders(environ), *(() if attach is None else (os.path.dirname(attach),)))
    started = tuple(started_from(environ))
    return canonical_roots(paths, protected_trees=own, home=home_of(environ), started_from=started)


def own_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where our settings and our state are looked for, there or not."""
    home = home_of(environ)
    places = (("XDG_CONFIG_HOME", ".config", "egress"), ("XDG_STATE_HOME", ".local/state", "egress-proxy"))
    folders = []
    for variable, usual, name in places:
        folder = environ.get(variable, "")
        if not os.path.isabs(folder):
            folder = os.path.join(home, usual) if home else ""
        if folder:
            folders.append(os.path.join(folder, name))
    return tuple(folders)


def working_folder() -> str:
    """Raises VerbFailed when it is gone."""
    try:
        return os.getcwd()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise VerbFailed(
            ExitCode.USAGE, f"the working folder cannot be used: {reason}; start in another"
        ) from None


def home_of(environ: Mapping[str, str]) -> str | None:
    home = environ.get("HOME", "")
    return home if os.path.isabs(home) else None


def masked_line(paths: Sequence[str], homes: Sequence[str]) -> str:
    """What cannot be read, for people: the first few, and how many more."""
    shown = [_quoted(path, homes) for path in paths[:_MASKED_SHOWN]]
    more = f" and {len(paths) - len(shown)} more" if len(paths) > len(shown) else ""
    return f"masked: {', '.join(shown)}{more} (--no-mask PATH lets one be read)"


def _quoted(path: str, homes: Sequence[str]) -> str:
    """As a shell takes it; a name may hold anything, a line end too."""
    for home in homes:
        if is_below(path, home):
            return f"~/{shlex.quote(ascii(os.path.relpath(path, home))[1:-1])}"
    return shlex.quote(ascii(path)[1:-1])


def attach_path(environ: Mapping[str, str]) -> str | None:
    """Where a running proxy is looked for that nobody named."""
    return environ.get(ATTACH_VARIABLE) or default_path(environ)


def _hosts(entries: list[str] | None) -> tuple[Endpoint, ...] | None:
    """Raises VerbFailed, which names the entry."""
    if entries is None:
        return None
    try:
        return read_host_list(entries)
    except RuleError as error:
        raise VerbFailed(ExitCode.USAGE, f"{error} (--allow-host)") from None


def _egress(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Egress:
    hosts = _hosts(getattr(arguments, "allow_host", None))
    chosen = [
        flag
        for flag, is_given in (
            ("--no-network", arguments.no_network),
            ("--proxy", arguments.proxy is not None),
            ("--allow-host", hosts is not None),
        )
        if is_given
    ]
    if len(chosen) > 1:
        raise VerbFailed(ExitCode.USAGE, f"{chosen[0]} and {chosen[1]} exclude one another; give one")
    if arguments.no_network:
        return NoNetwork()
    if arguments.proxy is not None:
        return through_proxy(arguments.proxy)
    return OpenNetwork() if hosts is None else egress_of(hosts, attach_path(environ))
