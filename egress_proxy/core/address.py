"""IP to the class it belongs to; unwraps IPv4 hidden in IPv6 and judges both.

No policy: which classes may be dialled is decided in policy.py. `ipaddress.is_global` is not used: it calls
multicast, site-local and NAT64 of loopback global, and its answers differ between Python versions.
"""

import enum
import functools
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class AddressClass(enum.StrEnum):
    """What an address is for. Only PUBLIC may be dialled without an entry that opts in."""

    PUBLIC = "public"
    METADATA = "metadata"
    LOOPBACK = "loopback"
    PRIVATE = "private"
    LINK_LOCAL = "link_local"
    CARRIER_NAT = "carrier_nat"
    MULTICAST = "multicast"
    UNSPECIFIED = "unspecified"
    BROADCAST = "broadcast"
    RESERVED = "reserved"
    DOCUMENTATION = "documentation"
    BENCHMARKING = "benchmarking"
    SITE_LOCAL = "site_local"
    EMBEDDED_IPV4 = "embedded_ipv4"


_C = AddressClass

# First match wins, so the narrow ones stand first. One source per line: an RFC of the IANA special-purpose
# registries, or the vendor whose instances answer there with credentials.
_TABLE: tuple[tuple[str, AddressClass, str], ...] = (
    ("169.254.169.254/32", _C.METADATA, "AWS, Azure, Google, OpenStack and others"),
    ("169.254.170.2/32", _C.METADATA, "AWS ECS task credentials"),
    ("169.254.170.23/32", _C.METADATA, "AWS EKS pod identity"),
    ("169.254.0.23/32", _C.METADATA, "Tencent Cloud"),
    ("169.254.42.42/32", _C.METADATA, "Scaleway"),
    ("100.96.0.96/32", _C.METADATA, "Volcano Engine"),
    ("100.100.100.200/32", _C.METADATA, "Alibaba Cloud"),
    ("192.0.0.192/32", _C.METADATA, "Oracle Cloud classic"),
    ("168.63.129.16/32", _C.METADATA, "Azure WireServer; public by its number"),
    ("fd00:ec2::254/128", _C.METADATA, "AWS over IPv6"),
    ("fd00:ec2::23/128", _C.METADATA, "AWS EKS pod identity over IPv6"),
    ("fd00:42::42/128", _C.METADATA, "Scaleway over IPv6"),
    ("fd00:100::100:200/128", _C.METADATA, "Alibaba Cloud over IPv6"),
    ("fd00:a9fe:a9fe::1/128", _C.METADATA, "Akamai over IPv6"),
    ("fd00:c1::a9fe:a9fe/128", _C.METADATA, "Oracle Cloud over IPv6"),
    ("fd20:ce::254/128", _C.METADATA, "Google over IPv6"),
    ("fe80::a9fe:a9fe/128", _C.METADATA, "OpenStack over IPv6"),
    ("0.0.0.0/32", _C.UNSPECIFIED, "RFC 1122 3.2.1.3; Linux connects it to loopback"),
    ("0.0.0.0/8", _C.RESERVED, "RFC 791 3.2"),
    ("10.0.0.0/8", _C.PRIVATE, "RFC 1918"),
    ("100.64.0.0/10", _C.CARRIER_NAT, "RFC 6598"),
    ("127.0.0.0/8", _C.LOOPBACK, "RFC 1122 3.2.1.3"),
    ("169.254.0.0/16", _C.LINK_LOCAL, "RFC 3927"),
    ("172.16.0.0/12", _C.PRIVATE, "RFC 1918"),
    ("192.0.0.0/24", _C.RESERVED, "RFC 6890"),
    ("192.0.2.0/24", _C.DOCUMENTATION, "RFC 5737"),
    ("192.88.99.0/24", _C.RESERVED, "RFC 7526, former 6to4 relays"),
    ("192.168.0.0/16", _C.PRIVATE, "RFC 1918"),
    ("198.18.0.0/15", _C.BENCHMARKING, "RFC 2544"),
    ("198.51.100.0/24", _C.DOCUMENTATION, "RFC 5737"),
    ("203.0.113.0/24", _C.DOCUMENTATION, "RFC 5737"),
    ("224.0.0.0/4", _C.MULTICAST, "RFC 5771"),
    ("255.255.255.255/32", _C.BROADCAST, "RFC 919"),
    ("240.0.0.0/4", _C.RESERVED, "RFC 1112 4"),
    ("::/128", _C.UNSPECIFIED, "RFC 4291 2.5.2; Linux connects it to loopback"),
    ("::1/128", _C.LOOPBACK, "RFC 4291 2.5.3"),
    ("64:ff9b:1::/48", _C.RESERVED, "RFC 8215, NAT64 of a local network"),
    ("100::/64", _C.RESERVED, "RFC 6666"),
    ("100:0:0:1::/64", _C.RESERVED, "RFC 9780"),
    ("2001:2::/48", _C.BENCHMARKING, "RFC 5180"),
    ("2001:db8::/32", _C.DOCUMENTATION, "RFC 3849"),
    ("2001::/23", _C.RESERVED, "RFC 2928, with Teredo (RFC 4380) and ORCHID"),
    ("3fff::/20", _C.DOCUMENTATION, "RFC 9637"),
    ("5f00::/16", _C.RESERVED, "RFC 9602"),
    ("fc00::/7", _C.PRIVATE, "RFC 4193"),
    ("fe80::/10", _C.LINK_LOCAL, "RFC 4291 2.5.6"),
    ("fec0::/10", _C.SITE_LOCAL, "RFC 3879"),
    ("ff00::/8", _C.MULTICAST, "RFC 4291 2.7"),
)

# Where IPv4 hides, and how many bits lie below it. The flag says whether a public inner address makes the
# whole public: mapped addresses and NAT64 reach just the inner host, the others go by way of strangers.
_EMBEDDINGS: tuple[tuple[str, int, bool, str], ...] = (
    ("::ffff:0:0/96", 0, True, "RFC 4291 2.5.5.2, mapped"),
    ("64:ff9b::/96", 0, True, "RFC 6052 2.1, NAT64"),
    ("64:ff9b:1::/48", 0, False, "RFC 8215, NAT64 of a local network, in its usual /96"),
    ("::ffff:0:0:0/96", 0, False, "RFC 7915, translated"),
    ("::/96", 0, False, "RFC 4291 2.5.5.1, compatible"),
    ("2002::/16", 80, False, "RFC 3056, 6to4"),
    ("2001::/32", 0, False, "RFC 4380, Teredo; the client's bits are inverted"),
)

_TEREDO = IPv6Network("2001::/32")
# Its operator chooses the length of the prefix (RFC 8215 4), and nobody outside can see which it is.
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
# Everything IPv6 outside global unicast (RFC 4291 2.4) that no line above names.
_GLOBAL_UNICAST = IPv6Network("2000::/3")


def _networks() -> tuple[tuple[Network, AddressClass], ...]:
    return tuple((ip_network(text), kind) for text, kind, _ in _TABLE)


_NETWORKS = _networks()
_V4 = tuple((n, kind) for n, kind in _NETWORKS if isinstance(n, IPv4Network))
_V6 = tuple((n, kind) for n, kind in _NETWORKS if isinstance(n, IPv6Network))
_HIDING = tuple((IPv6Network(text), shift, reach) for text, shift, reach, _ in _EMBEDDINGS)


# Pure, and asked for every connection: some 40 networks are compared in Python otherwise.
@functools.lru_cache(maxsize=4096)
def classify(address: Address) -> AddressClass:
    """The class that decides: of the address itself, or of the IPv4 address hidden in it."""
    if isinstance(address, IPv4Address):
        return next((kind for net, kind in _V4 if address in net), _C.PUBLIC)
    own = next((kind for net, kind in _V6 if address in net), None)
    hidden = embedded_ipv4(address)
    if hidden is not None:
        if any(classify(inner) is _C.METADATA for inner in reached(address)[1:]):
            return _C.METADATA
        inner, reaches = classify(hidden[0]), hidden[1]
        if inner is not _C.PUBLIC:
            return inner
        return _C.PUBLIC if reaches else _C.EMBEDDED_IPV4
    if own is None:
        return _C.PUBLIC if address in _GLOBAL_UNICAST else _C.RESERVED
    return own


# Printing one is as slow: a line of the log and the dial need it for every connection.
@functools.lru_cache(maxsize=4096)
def address_text(address: Address) -> str:
    return str(address)


def embedded_ipv4(address: Address) -> tuple[IPv4Address, bool] | None:
    """The hidden IPv4 address, and whether dialling the whole reaches just that host; or None."""
    if isinstance(address, IPv4Address) or int(address) <= 1:
        return None  # `::` and `::1` are inside ::/96 and hide nothing
    for network, shift, reaches in _HIDING:
        if address in network:
            bits = (int(address) >> shift) & 0xFFFFFFFF
            return IPv4Address(bits ^ 0xFFFFFFFF if network == _TEREDO else bits), reaches
    return None


@functools.lru_cache(maxsize=4096)
def reached(address: Address) -> tuple[Address, ...]:
    """What the kernel connects to, then each IPv4 host behind it: who judges one judges all of them."""
    hidden = embedded_ipv4(address)
    if hidden is None or isinstance(address, IPv4Address):
        return (address,)
    others = _local_nat64(address) if address in _LOCAL_NAT64 else ()
    return tuple(dict.fromkeys((dialled_address(address), hidden[0], *others)))


def _local_nat64(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 host for prefixes of 48, 56 and 64 bits (RFC 6052 2.2): the bits 64 to 71 are left out."""
    bits = int(address)
    without_u = (bits >> 64 << 56) | (bits & (1 << 56) - 1)
    return tuple(IPv4Address(without_u >> 120 - 32 - prefix & 0xFFFFFFFF) for prefix in (48, 56, 64))


def dialled_address(address: Address) -> Address:
    """What the kernel really connects to: a mapped address is its IPv4 host."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
