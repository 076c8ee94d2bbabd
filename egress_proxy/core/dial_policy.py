"""Which addresses may be dialled for an allowed target: judge_addresses(), and what no entry can ever open.

Pure: the lookup has been made, the dialler dials exactly what comes out. Next: address.py (classes of
addresses), policy.py (who allowed the target), proxy/dialer.py (the caller).
"""

from collections.abc import Collection, Sequence

from egress_proxy.core.address import (
    Address,
    AddressClass,
    classify,
    dialled_address,
    embedded_ipv4,
    reached,
)
from egress_proxy.core.decision import Allow, Deny, OptIn, Reason
from egress_proxy.core.host import Host, HostError, Name, Target, parse_host
from egress_proxy.core.rule_index import RuleIndex

# Names under which clouds hand credentials to whoever asks from inside. Refused whatever is listed.
METADATA_NAMES = frozenset(
    {
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "instance-data",
        "instance-data.ec2.internal",
        "metadata.tencentyun.com",
        "metadata.packet.net",
        "metadata.platformequinix.com",
        "api.metadata.cloud.ibm.com",
    }
)
_INWARD = frozenset(
    {
        AddressClass.LOOPBACK,
        AddressClass.PRIVATE,
        AddressClass.CARRIER_NAT,
        AddressClass.LINK_LOCAL,
        # Resolvers that answer for a tunnel or a mirror of their own use these two for it (fake-IP DNS).
        AddressClass.DOCUMENTATION,
        AddressClass.BENCHMARKING,
    }
)
_PUBLIC = frozenset({AddressClass.PUBLIC})
_LOOPBACK = frozenset({AddressClass.LOOPBACK})
_DIALLED = {
    OptIn.NONE: _PUBLIC,
    OptIn.LOOPBACK: _PUBLIC | _LOOPBACK,
    OptIn.INWARD: _PUBLIC | _INWARD,
    OptIn.ONLY_LOOPBACK: _LOOPBACK,
}
# Not even a literal entry reaches these: 0.0.0.0 is loopback by another name, the rest are no hosts.
_NEVER = frozenset(
    {AddressClass.METADATA, AddressClass.UNSPECIFIED, AddressClass.MULTICAST, AddressClass.BROADCAST}
)

# Of several reasons for several addresses, the one that a person should hear of.
_TOLD_FIRST = (Reason.METADATA, Reason.OWN_LISTENER, Reason.DENIED_BY_RULE)


def is_metadata(host: Host) -> bool:
    """Whether the host is a metadata service, by its name or as a literal address."""
    if isinstance(host, Name):
        return host.text in METADATA_NAMES
    return classify(host) is AddressClass.METADATA


def may_ever_dial(target: Target, own: Collection[Target]) -> Reason | None:
    """Why no entry can ever open the target (None: one can). For entries and grants, before any lookup."""
    if is_metadata(target.host):
        return Reason.METADATA
    if isinstance(target.host, Name):
        local = target.host.text == "localhost" and any(target.port == mine.port for mine in own)
        return Reason.OWN_LISTENER if local else None
    return _refusal(target.host, target, OptIn.LITERAL, own)


def judge_addresses(
    allow: Allow,
    addresses: Sequence[Address],
    chain: Sequence[str],
    own: Collection[Target],
    deny: RuleIndex[str] | None = None,
    completed: Name | None = None,
) -> tuple[Address, ...] | Deny:
    """The addresses that may be dialled for an allowed target, in order; Deny when none may.

    ``chain`` holds the names of the CNAME chain, ``own`` the proxy's listeners, ``deny`` the deny entries,
    ``completed`` the name that a search list made of the target's. A private address may be dialled only
    where the entry opts in; metadata, our own listeners and what is denied by its address never.
    """
    refusal = None if completed is None else _judge_completed(allow, completed, deny)
    if refusal is not None:
        return refusal
    for name in chain:
        if _is_metadata_text(name):
            return Deny(Reason.METADATA, allow.target, allow.rule, f"{allow.target.host} is an alias of it")
    if not addresses:
        return Deny(Reason.NO_SUCH_NAME, allow.target, allow.rule)
    refused: list[Reason] = []
    kept: list[Address] = []
    for address in addresses:
        reason = _refusal(address, allow.target, allow.opt_in, own) or _denial(address, allow.target, deny)
        if reason is None:
            kept.append(address)
        else:
            refused.append(reason)
    if kept:
        return tuple(kept)
    worst = next((r for r in _TOLD_FIRST if r in refused), None)
    kinds = ", ".join(sorted({classify(address).value for address in addresses}))
    return Deny(worst or Reason.ADDRESS_NOT_PUBLIC, allow.target, allow.rule, f"its addresses are {kinds}")


def _denial(address: Address, target: Target, deny: RuleIndex[str] | None) -> Reason | None:
    """A denied address is denied under every name; entries for one client are about targets."""
    if deny is None or deny.is_empty:
        return None
    for each in reached(address):
        if any(rule.client is None for rule, _ in deny.matching(Target(each, target.port))):
            return Reason.DENIED_BY_RULE
    return None


def _judge_completed(allow: Allow, completed: Name, deny: RuleIndex[str] | None) -> Deny | None:
    """The name that was really asked for is judged as if the client had named it, for whichever client."""
    detail = f"the search list makes it {completed}"
    if is_metadata(completed):
        return Deny(Reason.METADATA, allow.target, allow.rule, detail)
    for _, text in () if deny is None else deny.matching(Target(completed, allow.target.port)):
        return Deny(Reason.DENIED_BY_RULE, allow.target, text, detail)
    return None


def _is_metadata_text(name: str) -> bool:
    try:
        return is_metadata(parse_host(name))
    except HostError:  # names inside the DNS need not be host names
        return False


def _refusal(address: Address, target: Target, opt_in: OptIn, own: Collection[Target]) -> Reason | None:
    kind, dialled = classify(address), dialled_address(address)
    if kind is AddressClass.METADATA:
        return Reason.METADATA
    if kind in _NEVER:
        return Reason.ADDRESS_NOT_PUBLIC
    hosts = reached(address)
    if any(_is_own(each, target.port, mine) for mine in own for each in hosts):
        return Reason.OWN_LISTENER
    if opt_in is OptIn.LITERAL:
        return None if dialled == target.host else Reason.ADDRESS_NOT_PUBLIC
    # 2002:7f00:1:: and 64:ff9b::7f00:1 are of class loopback and lead to strangers: nothing opts in to that.
    leads_away = kind is not AddressClass.PUBLIC and embedded_ipv4(dialled) is not None
    return None if kind in _DIALLED[opt_in] and not leads_away else Reason.ADDRESS_NOT_PUBLIC


def _is_own(address: Address, port: int, mine: Target) -> bool:
    if port != mine.port or isinstance(mine.host, Name):
        return False
    # A listener on 0.0.0.0 or :: answers on every address of this machine, and we cannot list those.
    if classify(mine.host) is AddressClass.UNSPECIFIED:
        return classify(address) is not AddressClass.PUBLIC
    return address == dialled_address(mine.host)
