"""The contract once more, naive on purpose: on text, entry by entry, with nothing of core but its values.

No parsing of doubtful input here: oracles are asked about canonical text only.
"""

import ipaddress
from collections.abc import Iterable, Sequence

from egress_proxy.core.access import Access, Door
from egress_proxy.core.decision import Reason
from egress_proxy.core.grants import Grant
from egress_proxy.core.policy import OnMiss, Policy
from egress_proxy.core.rules import Rule

METADATA = {
    "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
    "169.254.169.254", "[fd00:ec2::254]",
}  # fmt: skip


def entry_covers(entry: str, target: str) -> bool:
    """Whether an entry as printed covers a target as printed."""
    host, _, port = target.rpartition(":")
    pattern, ports = entry, "80,443"
    if not entry.endswith("]") and ":" in entry:
        pattern, _, ports = entry.rpartition(":")
    if ports != "*" and port not in ports.split(","):
        return False
    if pattern.startswith("**."):
        return host == pattern[3:] or host.endswith(pattern[2:])
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern


def hidden_ipv4(literal: str) -> str | None:
    """The IPv4 address inside a bracketed literal, by what the standard library and arithmetic say."""
    if not literal.startswith("["):
        return None
    address = ipaddress.IPv6Address(literal[1:-1])
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped or address.sixtofour:
        return str(address.ipv4_mapped or address.sixtofour)
    if address.teredo:
        return str(address.teredo[1])
    nat64 = (int(address) >> 32 == 0x64FF9B << 64) or (int(address) >> 80 == 0x64FF9B0001)
    translated = int(address) >> 32 == 0xFFFF << 16
    compatible = int(address) >> 32 == 0 and int(address) > 1
    return str(low) if nat64 or translated or compatible else None


def spellings(target: str) -> list[str]:
    """A target, and the IPv4 target that it leads to."""
    host, _, port = target.rpartition(":")
    inner = hidden_ipv4(host)
    return [target] if inner is None else [target, f"{inner}:{port}"]


def any_covers(rules: Iterable[Rule], targets: Sequence[str], client: str) -> bool:
    return any(
        entry_covers(str(rule), target) and rule.client in (None, client)
        for rule in rules
        for target in targets
    )


def expected(access: Access, policy: Policy, grants: Sequence[Grant], now: float) -> str:
    """`allow`, `ask`, or the reason of the refusal, as contract section 2 orders them; tunnels only."""
    assert access.door is Door.TUNNEL
    target, client = str(access.target), access.client.id
    host = target.rpartition(":")[0]
    if host in METADATA or hidden_ipv4(host) in METADATA:
        return Reason.METADATA
    if any_covers((rule for rule, _ in policy.deny), spellings(target), client):
        return Reason.DENIED_BY_RULE
    if any(f"{route.host}:{route.port}" == target for route in policy.routes):
        return Reason.INJECT_OTHER_TARGET
    if any_covers((rule for rule, _ in policy.allow), [target], client):
        return "allow"
    in_time = [g for g in grants if (g.ends_at is None or now < g.ends_at) and g.bytes_left != 0]
    if any_covers((g.rule for g in in_time if g.uses_left != 0), [target], client):
        return "allow"
    if policy.on_miss is OnMiss.HOLD:
        return "ask"
    spent = any_covers((g.rule for g in in_time), [target], client)
    return Reason.GRANT_EXHAUSTED if spent else Reason.NOT_LISTED
