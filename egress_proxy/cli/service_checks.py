"""What must hold between settings before a service may start, and what is worth a warning.

Single values are checked by settings/, entries by policy_source.py. Next: planning.py (who asks).
"""

import select
from collections.abc import Collection, Iterator
from ipaddress import IPv4Address

from egress_proxy.cli.endpoints import Endpoint, parse_bind, parse_server
from egress_proxy.cli.inject_source import useless_flags
from egress_proxy.core.address import AddressClass, classify
from egress_proxy.core.decision import Reason
from egress_proxy.core.dial_policy import may_ever_dial
from egress_proxy.core.host import HostError, Target
from egress_proxy.core.policy import Policy
from egress_proxy.core.rules import WEB_PORTS, Rule, Scope
from egress_proxy.path_trust import file_owner, open_folder_above
from egress_proxy.proxy.tcp_owner import is_supported
from egress_proxy.settings.load import Loaded
from egress_proxy.settings.origins import SettingsError

# Where the control API listens, whatever bind says.
_CONTROL_ADDRESS = IPv4Address("127.0.0.1")
_EMPTY = (
    "nothing may be reached: name a host with --allow HOST (in the file: [[allow]]), "
    "or say --allow-none to start with an empty list"
)
_REFUSED = {
    Reason.METADATA: "cloud metadata is never reachable",
    Reason.OWN_LISTENER: "the proxy does not connect to itself",
}


def check_service(loaded: Loaded, policy: Policy) -> None:
    """Raises SettingsError."""
    bind = bind_of(loaded)
    resolver_of(loaded)
    settings = loaded.settings
    if not any(policy.allow) and not policy.routes and not settings.allow_none:
        raise SettingsError(_EMPTY)
    if bind.port and bind.port == settings.control.port:
        raise loaded.error(("control", "port"), "is the port of bind: each needs its own")
    if settings.record_requests and not policy.routes:
        raise loaded.error(("record_requests",), "needs an inject rule: only those have bodies")
    if settings.same_user and not is_supported():
        raise loaded.error(("same_user",), "needs Linux: this system does not say whose a connection is")
    if settings.relay == "epoll" and not hasattr(select, "epoll"):
        raise loaded.error(("relay",), "cannot be epoll on this system")


def bind_of(loaded: Loaded) -> Endpoint:
    """Raises SettingsError, also where strangers could use the proxy."""
    settings = loaded.settings
    key = ("bind",)
    try:
        bind = parse_bind(settings.bind)
    except HostError as error:
        raise loaded.error(key, f"must be ADDRESS:PORT, such as 127.0.0.1:8899: {error}") from None
    if classify(bind.address) is AddressClass.LOOPBACK:
        return bind
    if not settings.client and not settings.client_token:
        raise loaded.error(
            key, "is not loopback: anybody could use the proxy; add --client-token-env or [[client]]"
        )
    if not settings.dangerously_bind_any:
        raise loaded.error(key, "is not loopback: if that is meant, say --dangerously-bind-any too")
    return bind


def resolver_of(loaded: Loaded) -> Endpoint | None:
    text = loaded.settings.resolver
    if not text:
        return None
    try:
        return parse_server(text)
    except HostError as error:
        raise loaded.error(
            ("resolver",), f"must be an address, such as 192.0.2.53 or [2001:db8::53]:53: {error}"
        ) from None


def warnings_of(loaded: Loaded, policy: Policy) -> Iterator[str]:
    """Lines for the person who starts the service: what was said and will not work."""
    yield from loaded.warnings
    yield from useless_flags(loaded)
    settings = loaded.settings
    if settings.control.port and not settings.control.token:
        where = loaded.origin("control", "port").text
        yield f"{where} has no effect without --control-token-env: there is no control API"
    yield from _replaceable_files(loaded)
    own = _own_listeners(loaded)
    for rule, _ in policy.allow:
        reasons = {may_ever_dial(target, own) for target in _targets(rule)}
        yield from _refused(str(rule), reasons)
    for route in policy.routes:
        yield from _refused(f"inject rule {route.name}", {may_ever_dial(route.upstream, own)})


def _replaceable_files(loaded: Loaded) -> Iterator[str]:
    """What decides nothing is written all the same, and said."""
    settings = loaded.settings
    for path in filter(None, (settings.audit.path, settings.record_requests)):
        folder = open_folder_above(path)
        if folder is not None:
            yield f"everybody may write to {folder} and so replace {path}; chmod o-w it"
    owner = file_owner(loaded.file) if loaded.file else None
    if owner is not None:
        yield f"the settings file {loaded.file} belongs to user {owner}, who decides what may be reached"


def _own_listeners(loaded: Loaded) -> Collection[Target]:
    control = loaded.settings.control
    listeners = [bind_of(loaded)]
    if control.token:
        listeners.append(Endpoint(_CONTROL_ADDRESS, control.port))
    return [target for listener in listeners if (target := listener.target) is not None]


def _targets(rule: Rule) -> Iterator[Target]:
    """The targets of an entry that names one host; of `host:*` two that stand for the rest."""
    if rule.scope is Scope.EXACT:
        ports = {rule.ports} if isinstance(rule.ports, int) else WEB_PORTS
        for port in ports:
            yield Target(rule.host, port)


def _refused(what: str, reasons: Collection[Reason | None]) -> Iterator[str]:
    if reasons and None not in reasons:
        reason = next(iter(reasons))
        words = _REFUSED.get(reason, "no such address can be dialled") if reason else ""
        yield f"{what} is listed and refused all the same: {words}"
