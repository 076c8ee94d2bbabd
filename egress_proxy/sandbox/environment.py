"""The variables that send a process through the proxy, and the environment a confined child gets.

Standard library alone; the environment comes in as a mapping. Allow-list, not block-list: what a
child may see is named here, the rest stays behind. Next: cli/env.py (prints the variables).
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MARKER = "STEERABLE_EGRESS_CONFINED"
"""Tells agents that the proxy is the only way out. Set only when it has answered."""

# Tools differ in which case they read: wget and apt the lower one alone, curl the lower one for http.
_PROXIED = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# Programs that read none of those but names of their own, spelt just so: Yarn since 2.0, by its settings
# httpProxy and httpsProxy. (Java and Maven take flags and files alone.)
_OWN_NAMES = ("YARN_HTTP_PROXY", "YARN_HTTPS_PROXY")
_DIRECT = "NO_PROXY"
# Node reads the proxy variables only when it is told to (22.21 and 24.0 up).
_NODE = "NODE_USE_ENV_PROXY"
# Names and no ranges: link-local ranges in NO_PROXY have let metadata services be reached past a proxy.
_LOOPBACK = "localhost,127.0.0.1,::1"

PROXY_NAMES = (
    *(spelling for name in (*_PROXIED, _DIRECT) for spelling in (name, name.lower())),
    *_OWN_NAMES,
    _NODE,
    MARKER,
)
"""Every variable that `proxy_variables` can set."""

INHERITED_NAMES = ("PATH", "HOME", "LANG", "LC_*", "TERM", "USER", "LOGNAME", "SHELL", "TZ")
"""What a child gets of its parent's environment; `LC_*` is every name that begins so."""
_INHERITED = re.compile("|".join(INHERITED_NAMES).replace("*", "[A-Z]+"))
# Not even a declared extra: what is a credential by its name.
_CREDENTIAL = re.compile(r".*_(?:TOKEN|KEY|SECRET|PASSWORD)")
# Not even what a person names: the proxy's own secrets, sockets of the session, what makes a program load
# code, and what the way to the proxy is told by.
_CHANGES_THE_SANDBOX = re.compile(
    r"(?:STEERABLE_)?EGRESS_(?:SECRET|CONTROL_.*)|EGRESS_EXEC_BACKEND"
    r"|SSH_AUTH_SOCK|DBUS_.*|XDG_RUNTIME_DIR|DISPLAY|WAYLAND_DISPLAY|DOCKER_HOST"
    r"|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|GLIBC_TUNABLES|ENV|BASH_ENV|BASH_FUNC_.*|PYTHON.*|PERL5(?:LIB|OPT|DB)"
    r"|RUBY(?:LIB|OPT)|NODE_(?:OPTIONS|PATH)|(?:_|JDK_)JAVA_OPTIONS|JAVA_TOOL_OPTIONS|GIT_SSH.*|GIT_CONFIG.*"
    r"|GIT_EXEC_PATH"
)
_SPELLED_AS_A_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

SPAWNER_NAMES = ("STEERABLE_*",)
"""What a printed command line passes on of its spawner's environment by itself, but for those below."""
WITHHELD_WORDS = (
    "TOKEN", "TOKENS", "KEY", "KEYS", "APIKEY", "SECRET", "SECRETS", "PASSWORD", "PASSWORDS", "PASSWD",
    "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "CONTROL", MARKER,
)  # fmt: skip
"""A name passes by no pattern when it is one of these, or has one of them between its underscores. The marker
among them: a spawner's own says nothing of this sandbox."""

SETTLED = {"LSAN_OPTIONS": "detect_leaks=0"}
"""What every Linux sandbox sets. The leak check of AddressSanitizer traces its own process, which is refused:
without this each program that is built with it would end with a failure of the check itself."""


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
    own = dict.fromkeys(_OWN_NAMES, proxy_url)
    return {**both, **own, _NODE: "1", **({MARKER: "1"} if confined else {})}


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
        _check(name)
        if _CREDENTIAL.fullmatch(name):
            raise ValueError(_REFUSED.format(name))
    kept = {name: value for name, value in parent.items() if name in declared or _INHERITED.fullmatch(name)}
    return {**kept, **proxy}


@dataclass(frozen=True, slots=True)
class NamedVariables:
    """What a person asked for: ``names`` are passed on as they are by then, ``values`` are set."""

    names: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)


NO_VARIABLES = NamedVariables()


def named_variables(entries: Iterable[str]) -> NamedVariables:
    """Of `NAME` and `NAME=VALUE`; the last one of a name counts. Credentials too: whoever names one means it.

    Raises ValueError, which shows the name and no value.
    """
    asked: dict[str, str | None] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not _SPELLED_AS_A_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a variable")
        _check(name)
        asked[name] = value if equals else None
    values = {name: value for name, value in asked.items() if value is not None}
    return NamedVariables(tuple(name for name in asked if name not in values), values)


_REFUSED = "{} cannot be handed to a confined process"


def _check(name: str) -> None:
    if _CHANGES_THE_SANDBOX.fullmatch(name) or name in PROXY_NAMES:
        raise ValueError(_REFUSED.format(name))
