"""The Seatbelt profile of one command, as text for sandbox-exec of macOS. Pure: no I/O.

Deny by default. No profile of this file was ever compiled on a Mac: what it means is read by the tests' own
evaluator. Next: seatbelt_services.py (what each profile has), seatbelt_paths.py (paths and names in it),
seatbelt_gaps.py (what it does not hold).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from egress_proxy.core.host import parse_port
from egress_proxy.sandbox import seatbelt_services as services
from egress_proxy.sandbox.host_list import Endpoint, read_host_list
from egress_proxy.sandbox.seatbelt_paths import (
    checked_path,
    env_files,
    is_at_or_below,
    literal,
    protected_names,
    submodule_folders,
    subpath,
)
from egress_proxy.sandbox.secret_places import SECRET_NAMES

NAME = "seatbelt"
SANDBOX_EXEC = "/usr/bin/sandbox-exec"  # absolute: one found on PATH could be anything


@dataclass(frozen=True, slots=True)
class SeatbeltPolicy:
    """What a profile is made of, checked. Made by `seatbelt_policy` only.

    ``hosts``: None is open egress, a tuple is closed but for its entries. ``writable``: roots and scratch.
    ``masked``: paths that are neither read nor written. ``env_files``: folders below
    which `.env` files are not either, but for ``unmasked``.
    """

    hosts: tuple[Endpoint, ...] | None
    resolver: bool
    trust: bool
    writable: tuple[str, ...]
    masked: tuple[str, ...]
    env_files: tuple[str, ...]
    unmasked: tuple[str, ...]
    protect: bool
    interactive: bool


def build_seatbelt_profile(
    *,
    writable_roots: Sequence[str] = (),
    allowed_hosts: Sequence[str] | None = None,
    network: bool = True,
    proxy_port: int | None = None,
    allow_resolver: bool = False,
    allow_trust: bool = False,
    scratch: Sequence[str] = (),
    masks: Sequence[str] = (),
    protect: bool = True,
    home: str | None = None,
    cwd: str | None = None,
    unmasked: Sequence[str] = (),
    interactive: bool = False,
) -> str:
    """The text of a profile. What the words mean and what raises: `seatbelt_policy`."""
    return profile_text(
        seatbelt_policy(
            writable_roots=writable_roots,
            allowed_hosts=allowed_hosts,
            network=network,
            proxy_port=proxy_port,
            allow_resolver=allow_resolver,
            allow_trust=allow_trust,
            scratch=scratch,
            masks=masks,
            protect=protect,
            home=home,
            cwd=cwd,
            unmasked=unmasked,
            interactive=interactive,
        )
    )


def seatbelt_policy(
    *,
    writable_roots: Sequence[str] = (),
    allowed_hosts: Sequence[str] | None = None,
    network: bool = True,
    proxy_port: int | None = None,
    allow_resolver: bool = False,
    allow_trust: bool = False,
    scratch: Sequence[str] = (),
    masks: Sequence[str] = (),
    protect: bool = True,
    home: str | None = None,
    cwd: str | None = None,
    unmasked: Sequence[str] = (),
    interactive: bool = False,
) -> SeatbeltPolicy:
    """Check a policy. Raises ValueError, whose message names the entry, path or port that cannot be used.
    ``allowed_hosts``: None leaves egress open; any list closes it but for its entries. ``network`` False
    closes all. ``proxy_port``: the list of exactly `localhost:PORT`. ``allow_resolver``, ``allow_trust``:
    keep what any entry but loopback keeps anyway. ``scratch``: folders for temporary files, as protected as
    a root: `mv` between the two is one step. Paths are real ones. ``home``: whose secret files are masked,
    with .env files below it and ``cwd``, but for ``unmasked``; None for nobody's."""
    hosts = _hosts(allowed_hosts, network, proxy_port)
    elsewhere = network and (hosts is None or not all(endpoint.loopback for endpoint in hosts))
    roots = _checked((*writable_roots, *scratch), "writable root")
    shown = _checked(unmasked, "path off the mask")
    hidden = (*_checked(masks, "mask"), *_secrets(home, shown))
    _refuse_hidden_roots(roots, hidden)
    return SeatbeltPolicy(
        hosts=hosts,
        resolver=elsewhere or (network and allow_resolver),
        trust=elsewhere or (network and allow_trust),
        writable=roots,
        masked=tuple(dict.fromkeys(hidden)),
        env_files=_searched(roots, home, cwd),
        unmasked=shown,
        protect=protect,
        interactive=interactive,
    )


def seatbelt_argv(profile: str, argv: Sequence[str]) -> tuple[str, ...]:
    """The command under a profile, which every local user can see there: it holds names, and no secrets."""
    return (SANDBOX_EXEC, "-p", profile, "--", *argv)


def profile_text(policy: SeatbeltPolicy) -> str:
    """Deny by default, then what is allowed, then what is taken from that: the last rule with a filter wins,
    and a rule without one is its operation's default wherever it stands."""
    parts = ["(version 1)\n(deny default)", services.PROCESSES, services.SYSTEM, services.FILES]
    if policy.interactive:
        parts.append(services.CALLERS_TERMINAL)
    parts += [*_writes(policy), *_masks(policy), *_egress(policy)]
    return "\n\n".join(parts) + "\n"


def _checked(paths: Iterable[str], what: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(checked_path(path, what) for path in paths))


def _hosts(
    allowed_hosts: Sequence[str] | None, network: bool, proxy_port: int | None
) -> tuple[Endpoint, ...] | None:
    """Also reads a list that ``network`` makes void: a bad entry is an error in any case."""
    if proxy_port is not None:
        if allowed_hosts is not None:
            raise ValueError("a proxy port and a list of hosts exclude each other: the proxy owns the list")
        try:
            allowed_hosts = [f"localhost:{parse_port(str(proxy_port))}"]
        except ValueError as error:
            raise ValueError(f"invalid proxy port {proxy_port!r}: {error}") from None
    hosts = None if allowed_hosts is None else read_host_list(allowed_hosts)
    return hosts if network else ()


def _secrets(home: str | None, shown: Sequence[str]) -> Iterator[str]:
    if home is not None:
        folder = checked_path(home, "home folder")
        for path in (f"{folder}/{name}" for name in SECRET_NAMES):
            if not any(is_at_or_below(path, one) for one in shown):
                yield path


def _searched(roots: Sequence[str], home: str | None, cwd: str | None) -> tuple[str, ...]:
    """Folders below which .env files are masked; none where nobody's secrets are."""
    if home is None:
        return ()
    folders = [*roots, checked_path(home, "home folder")]
    if cwd is not None and cwd != "/":
        folders.append(checked_path(cwd, "working folder"))
    return tuple(dict.fromkeys(folders))


def _refuse_hidden_roots(roots: Sequence[str], hidden: Sequence[str]) -> None:
    for root in roots:
        for mask in hidden:
            if is_at_or_below(root, mask):
                raise ValueError(f"invalid writable root {root!r}: it lies in {mask!r}, which is masked")


def _writes(policy: SeatbeltPolicy) -> Iterator[str]:
    if policy.writable:
        yield _rule("allow file-write*", map(subpath, policy.writable))
    # With a filter although it means everything: without one, the rule above would win.
    yield '(deny file-write-setugid (subpath "/"))'
    if policy.writable:
        # An empty root could be replaced by a link, which the next run would resolve and open.
        yield _rule("deny file-write-unlink", map(literal, policy.writable))
    if policy.protect:
        for root in policy.writable:
            yield _rule("deny file-write*", protected_names(root))
            yield _rule("deny file-write-unlink", [submodule_folders(root)])


def _masks(policy: SeatbeltPolicy) -> Iterator[str]:
    filters = [*map(subpath, policy.masked)]
    filters += [env_files(folder, policy.unmasked) for folder in policy.env_files]
    if filters:
        yield _rule("deny file-read* file-write*", filters)
    ways = dict.fromkeys(way for mask in policy.masked for way in _ways_to(mask, policy.writable))
    if ways:
        # A mask is a place: whoever renames a folder on the way to it has it elsewhere, and reads it there.
        yield _rule("deny file-write-unlink", map(literal, ways))


def _ways_to(mask: str, roots: Sequence[str]) -> Iterator[str]:
    for root in roots:
        folder = mask.rpartition("/")[0]
        while folder != root and is_at_or_below(folder, root):
            yield folder
            folder = folder.rpartition("/")[0]


def _egress(policy: SeatbeltPolicy) -> Iterator[str]:
    if policy.hosts is None:
        # Not without a filter: that would open socket files too (Docker's, the key agent's).
        yield '; Egress is open.\n(allow network-outbound (remote ip "*:*"))'
    elif policy.hosts:
        yield "\n".join(dict.fromkeys(line for endpoint in policy.hosts for line in _endpoint(endpoint)))
    else:
        yield "; Egress is closed."
    if policy.resolver:
        yield services.RESOLVER
    if policy.trust:
        yield services.TRUST


def _endpoint(endpoint: Endpoint) -> Iterator[str]:
    """The rules of one entry. Its text is canonical: no comment can end early and become a rule."""
    host = "localhost" if endpoint.loopback else "*"
    if not endpoint.loopback:
        yield f"; {endpoint.entry}: Seatbelt knows no host names, so this is any host on that port."
    for port in ("*",) if endpoint.ports is None else endpoint.ports:
        yield f'(allow network-outbound (remote tcp "{host}:{port}"))'


def _rule(head: str, filters: Iterable[str]) -> str:
    return "\n  ".join([f"({head}", *filters]) + ")"
