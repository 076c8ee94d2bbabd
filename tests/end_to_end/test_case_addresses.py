"""Case C15 and contract section 2: which addresses a listed name may lead to.

No address here is dialled: all are refused. Those that may be reached are in a network namespace of
their own, in test_case_addresses_reached.py; lookups are in test_case_addresses_lookups.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest

from tests.end_to_end.case_parts import BAD_ADDRESS, DENIED, NO_SUCH_NAME, all_are, refusals
from tests.support.dns_stub import DnsStub
from tests.support.origins import EchoOrigin
from tests.support.service import TOKEN, Service

INWARD: dict[str, tuple[str, ...]] = {
    "loopback": ("127.0.0.1", "127.0.0.2", "127.1.2.3", "127.255.255.255", "::1"),
    "private": ("10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.1"),
    "private IPv6": ("fc00::1", "fd00::1", "fdff:ffff::1"),
    "link-local": ("169.254.0.1", "169.254.255.254", "fe80::1", "febf::1"),
    "carrier NAT": ("100.64.0.1", "100.127.255.255"),
}
# Refused as well; what a private entry makes of them is not promised.
UNROUTED: dict[str, tuple[str, ...]] = {
    "documentation": ("192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"),
    "benchmarking": ("198.18.0.1", "198.19.255.255", "2001:2::1"),
}
NEVER: dict[str, tuple[str, ...]] = {
    "this network": ("0.0.0.0", "0.0.0.1", "0.255.255.255", "::"),
    "multicast": ("224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1", "ff05::2"),
    "broadcast and reserved": ("255.255.255.255", "240.0.0.1", "254.255.255.255", "192.0.0.1", "192.0.0.8"),
    "site-local": ("fec0::1", "feff::1"),
    "6to4 relays": ("192.88.99.1",),
    "other IPv6": ("100::1", "2001:10::1", "2001:20::1", "5f00::1", "4000::1", "1::1", "8000::1", "fe00::1"),
    "IPv4 hidden": (
        "::ffff:0:127.0.0.1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::1",
        "2002:0a00:1::1",
        "2002:c0a8:101::1",
        "2001:0:5ef5:79fd:0:0:80ff:fffe",  # Teredo, 127.0.0.1 inverted
        "2001:0:7f00:1::1",
        "::127.0.0.1",
        "::10.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::192.168.1.1",
        "::ffff:0.0.0.0",
        "::ffff:224.0.0.1",
        "::ffff:255.255.255.255",
    ),
    "metadata": (
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "2002:a9fe:a9fe::1",
        "::169.254.169.254",
    ),
}
MAPPED_INWARD = ("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:192.168.0.1", "::ffff:169.254.0.1")
_NUMBERS = itertools.count()
METADATA_NAMES = (
    "metadata.google.internal",
    "metadata",
    "metadata.goog",
    "instance-data.ec2.internal",
    "metadata.tencentyun.com",
)


@pytest.fixture(scope="module")
def names() -> Iterator[DnsStub]:
    with DnsStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def origin() -> Iterator[EchoOrigin]:
    with EchoOrigin() as echo:
        yield echo


@pytest.fixture(scope="module")
def service(names: DnsStub, origin: EchoOrigin) -> Iterator[Service]:
    allow = ("--allow", f"*.pub.example:{origin.port}", "--allow-private", f"*.in.example:{origin.port}")
    metadata = [word for name in (*METADATA_NAMES, "169.254.169.254") for word in ("--allow", name)]
    private = ("--allow-private", "metadata.google.internal:8080", "--allow-private", "100.100.100.200")
    with Service(*allow, *metadata, *private, "--resolver", names.address, token=TOKEN) as running:
        yield running


def lead_to(names: DnsStub, domain: str, port: int, answers: Sequence[Sequence[str]]) -> dict[str, str]:
    """One name below ``domain`` for each answer; targets by what is in it."""
    targets = {}
    for addresses in answers:
        name = f"n{next(_NUMBERS)}.{domain}"
        names.add(name, *addresses)
        targets[f"{name}:{port}"] = " ".join(addresses)
    return targets


@pytest.mark.parametrize("addresses", [*INWARD.values(), *UNROUTED.values(), *NEVER.values(), MAPPED_INWARD])
def test_a_listed_name_never_leads_inward(
    service: Service, names: DnsStub, origin: EchoOrigin, addresses: tuple[str, ...]
) -> None:
    targets = lead_to(names, "pub.example", origin.port, [(address,) for address in addresses])
    got = {targets[str(target)]: answer for target, answer in refusals(service, targets).items()}
    assert got == all_are(BAD_ADDRESS, addresses)
    assert origin.connections_accepted == 0


@pytest.mark.parametrize("addresses", NEVER.values(), ids=NEVER.keys())
def test_not_even_a_private_entry_leads_there(
    service: Service, names: DnsStub, origin: EchoOrigin, addresses: tuple[str, ...]
) -> None:
    targets = lead_to(names, "in.example", origin.port, [(address,) for address in addresses])
    got = {targets[str(target)]: answer for target, answer in refusals(service, targets).items()}
    assert got == all_are(BAD_ADDRESS, addresses)
    assert origin.connections_accepted == 0


def test_of_several_answers_all_are_judged(service: Service, names: DnsStub, origin: EchoOrigin) -> None:
    """None is left, so 403, in every order and with both families."""
    answers = (
        ("127.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "::1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        tuple(f"10.0.0.{n}" for n in range(1, 30)),
    )
    targets = lead_to(names, "pub.example", origin.port, answers)
    assert refusals(service, targets) == all_are(BAD_ADDRESS, targets)
    assert origin.connections_accepted == 0


def test_an_alias_of_a_metadata_name_is_refused_whatever_its_address(
    service: Service, names: DnsStub, origin: EchoOrigin
) -> None:
    targets = []
    for number, name in enumerate(METADATA_NAMES):
        for domain in ("pub.example", "in.example"):
            names.add(name, "127.0.0.1")
            names.cname(f"c{number}.{domain}", name)
            names.cname(f"cc{number}.{domain}", f"C{number}.{domain.upper()}")
            targets += [f"c{number}.{domain}:{origin.port}", f"cc{number}.{domain}:{origin.port}"]
    assert refusals(service, targets) == all_are(BAD_ADDRESS, targets)
    assert origin.connections_accepted == 0


def test_an_alias_in_the_middle_of_a_chain_counts(
    service: Service, names: DnsStub, origin: EchoOrigin
) -> None:
    names.cname("start.in.example", "metadata.google.internal")
    names.cname("metadata.google.internal", "end.example")
    names.add("end.example", "127.0.0.1")
    target = f"start.in.example:{origin.port}"
    assert refusals(service, (target,)) == {target: BAD_ADDRESS}
    assert origin.connections_accepted == 0


def test_an_alias_is_judged_by_its_final_addresses(
    service: Service, names: DnsStub, origin: EchoOrigin
) -> None:
    names.add("inside.example", "10.0.0.1", "fd00::1")
    names.cname("outside.pub.example", "inside.example")
    target = f"outside.pub.example:{origin.port}"
    assert refusals(service, (target,)) == {target: BAD_ADDRESS}


def test_metadata_stays_refused_though_listed(service: Service, names: DnsStub) -> None:
    before = names.total_queries
    listed = (
        *(f"{name}:80" for name in METADATA_NAMES),
        "METADATA.Google.Internal.:443",
        "metadata.google.internal:8080",
        "169.254.169.254:80",
        "[::ffff:169.254.169.254]:80",
        "[::ffff:a9fe:a9fe]:443",
        "100.100.100.200:80",
    )
    assert refusals(service, listed) == all_are(BAD_ADDRESS, listed)
    assert names.total_queries == before


def test_no_grant_opens_metadata_or_an_own_port(service: Service) -> None:
    refused = (
        "169.254.169.254",
        "169.254.169.254:80",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]:80",
        "[fd00:ec2::254]",
        "168.63.129.16:32526",
        "metadata.google.internal",
        "Metadata.Google.Internal.:80",
        "metadata",
        f"127.0.0.1:{service.proxy_port}",
        f"127.0.0.1:{service.control_port}",
        f"localhost:{service.proxy_port}",
        f"localhost:{service.control_port}",
        f"[::ffff:127.0.0.1]:{service.control_port}",
        "0.0.0.0:80",
        "224.0.0.1",
        "255.255.255.255:443",
    )
    answers = {host: service.control("POST", "/allow", {"host": host}).status for host in refused}
    assert answers == dict.fromkeys(refused, 403)
    assert service.control("GET", "/grants").json() == {"grants": []}


def test_a_grant_for_every_port_of_loopback_is_for_those_of_others() -> None:
    with EchoOrigin() as origin, Service("--allow-none", token=TOKEN) as service:
        for host in ("127.0.0.1", "localhost"):
            service.allow(f"{host}:*")
        own = [f"127.0.0.1:{port}" for port in (service.proxy_port, service.control_port)]
        assert refusals(service, own) == all_are(BAD_ADDRESS, own)
        assert service.status(origin.address) == 200


def test_a_grant_lifts_neither_a_deny_entry_nor_an_address_rule(names: DnsStub) -> None:
    names.add("inside.test", "127.0.0.1")
    deny = ("--deny", "denied.test", "--deny", "*.denied.test", "--deny", "198.41.0.4")
    with (
        EchoOrigin() as origin,
        Service("--allow-none", *deny, "--resolver", names.address, token=TOKEN) as service,
    ):
        for host in ("denied.test", "a.denied.test", "198.41.0.4", "[::ffff:198.41.0.4]:443"):
            refused = service.control("POST", "/allow", {"host": host})
            assert (refused.status, refused.json()["error"]) == (403, "blocked-by-denylist")
        # Of this each deny entry leaves something, so it is made.
        for host in ("**.denied.test", "*.sub.test", f"inside.test:{origin.port}"):
            service.allow(host)
        denied = ("denied.test:443", "a.denied.test:80", "198.41.0.4:443", "[::ffff:198.41.0.4]:443")
        assert refusals(service, denied) == all_are(DENIED, denied)
        inward = f"inside.test:{origin.port}"
        assert refusals(service, (inward,)) == {inward: BAD_ADDRESS}
        assert refusals(service, ("a.sub.test:443",)) == {"a.sub.test:443": NO_SUCH_NAME}
        assert origin.connections_accepted == 0


def test_the_proxy_never_dials_itself(names: DnsStub) -> None:
    """By a listed name, a private entry, localhost or a wildcard for all ports: not its own listeners."""
    names.add("self.example", "127.0.0.1")
    names.add("mapped.example", "::ffff:127.0.0.1")
    private = ("--allow-private", "self.example:*", "--allow-private", "mapped.example:*")
    args = (*private, "--allow", "localhost:*", "--allow", "127.0.0.1:*")
    with Service(*args, "--resolver", names.address, token=TOKEN) as service:
        for port in (service.proxy_port, service.control_port):
            own = [f"{host}:{port}" for host in ("self.example", "mapped.example", "127.0.0.1")]
            own.append(f"[::ffff:127.0.0.1]:{port}")
            assert refusals(service, own) == all_are(BAD_ADDRESS, own)
        # By name there is ::1 too, where the proxy does not listen: nothing of ours answers there.
        for port in (service.proxy_port, service.control_port):
            assert service.status(f"localhost:{port}") in (403, 502)
        assert service.control("GET", "/status").json()["tunnels"]["open"] == 0
