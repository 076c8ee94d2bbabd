"""The variables that send a process through the proxy, and the environment a confined child gets.

Standard library alone; the environment comes in as a mapping. Allow-list, not block-list: what a
child may see is named here, the rest stays behind. Next: cli/env.py (prints the variables).
"""

import os
import re
from collections.abc import Iterable, Mapping

MARKER = "STEERABLE_EGRESS_CONFINED"
"""Tells agents that the proxy is the only way out. Set only when it has answered."""

# Tools differ in which case they read: wget and apt the lower one alone, curl the lower one for http.
_PROXIED = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_DIRECT = "NO_PROXY"
# Node reads the proxy variables only when it is told to (22.21 and 24.0 up).
_NODE = "NODE_USE_ENV_PROXY"
# Names and no ranges: link-local ranges in NO_PROXY have let metadata services be reached past a proxy.
_LOOPBACK = "localhost,127.0.0.1,::1"

PROXY_NAMES = (
    *(spelling for name in (*_PROXIED, _DIRECT) for spelling in (name, name.lower())),
    _NODE,
    MARKER,
)
"""Every variable that `proxy_variables` can set."""

INHERITED_NAMES = ("PATH", "HOME", "LANG", "LC_*", "TERM", "USER", "LOGNAME", "SHELL", "TZ")
"""What a child gets of its parent's environment; `LC_*` is every name that begins so."""
_INHERITED = re.compile("|".join(INHERITED_NAMES).replace("*", "[A-Z]+"))
# Not even a declared extra: credentials, sockets of the session, and what makes a program load code.
_NEVER = re.compile(
    r".*_(?:TOKEN|KEY|SECRET|PASSWORD)|STEERABLE_EGRESS_(?:SECRET|CONTROL_.*)"
    r"|SSH_AUTH_SOCK|DBUS_.*|XDG_RUNTIME_DIR|DISPLAY|WAYLAND_DISPLAY|DOCKER_HOST"
    r"|LD_.*|DYLD_.*|ENV|BASH_ENV|BASH_FUNC_.*|PYTHON.*|NODE_OPTIONS|GIT_SSH.*|GIT_CONFIG.*"
)


def host_environment() -> Mapping[str, str]:
    """A copy of this process's own, for hosts that hand in none. The sandbox's only look at it."""
    return dict(os.environ)


def proxy_variables(proxy_url: str, *, confined: bool, loopback_direct: bool = False) -> dict[str, str]:
    """``proxy_url`` is `http://HOST:PORT`, without credentials: children print their environment.

    ``confined`` sets the marker, and then nothing is exempt; else ``loopback_direct`` exempts the
    names of loopback.
    """
    direct = _LOOPBACK if loopback_direct and not confined else ""
    values = {**dict.fromkeys(_PROXIED, proxy_url), _DIRECT: direct}
    both = {spelling: value for name, value in values.items() for spelling in (name, name.lower())}
    return {**both, _NODE: "1", **({MARKER: "1"} if confined else {})}


def plain_messages(environ: Mapping[str, str]) -> dict[str, str]:
    """The same with error messages in the C locale: denials are read from them. Letters stay as they were.

    LC_ALL would outweigh LC_MESSAGES, so it is spelt out as what it stands for.
    """
    values = {name: value for name, value in environ.items() if name != "LC_ALL"}
    letters = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "C.UTF-8"
    return {**values, "LANG": letters, "LC_CTYPE": letters, "LC_MESSAGES": "C"}


def without_proxy(environ: Mapping[str, str], proxy_url: str) -> dict[str, str]:
    """The inverse: the environment without what `proxy_variables` set, other proxies left alone."""
    ours = {
        (name, value)
        for confined, direct in ((True, False), (False, False), (False, True))
        for name, value in proxy_variables(proxy_url, confined=confined, loopback_direct=direct).items()
    }
    return {name: value for name, value in environ.items() if (name, value) not in ours}


def child_environment(
    parent: Mapping[str, str], proxy: Mapping[str, str], extras: Iterable[str] = ()
) -> dict[str, str]:
    """What a confined child gets: the harmless few of ``parent``, the declared extras, ``proxy``.

    Proxy variables of the parent are dropped, never merged. Raises ValueError for an extra that no
    child may have.
    """
    declared = frozenset(extras)
    for name in sorted(declared):
        if _NEVER.fullmatch(name) or name in PROXY_NAMES:
            raise ValueError(f"{name} cannot be handed to a confined process")
    kept = {name: value for name, value in parent.items() if name in declared or _INHERITED.fullmatch(name)}
    return {**kept, **proxy}
