"""Cases C15 and C20: the addresses that may be reached, in a network namespace where all are at home.

Everything is started inside the namespace; only root on Linux can make one. See test_case_addresses.py.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.end_to_end.case_parts import BAD_ADDRESS, Refusal, all_are, refusals
from tests.support.byte_stream import read_exactly
from tests.support.dns_stub import DnsStub
from tests.support.netns import NetworkNamespace, unavailable
from tests.support.origins import EchoOrigin, StuckOrigin, closed_port
from tests.support.service import Service

_NUMBERS = itertools.count()
PORT = 4443
PUBLIC_V4, PUBLIC_V6 = "93.184.216.34", "2606:2800:220:1::1946"
INWARD = ("10.1.2.3", "172.20.0.1", "192.168.7.7", "169.254.7.7", "100.64.1.1", "fd00::7", "127.0.0.9")
DEAD_V4, DEAD_V6 = "9.9.9.0/24", "2606:4700::/32"
TIMEOUT = Refusal(504, "upstream-timeout")
UNREACHABLE = Refusal(502, "upstream-unreachable")


@pytest.fixture(scope="module")
def net() -> Iterator[NetworkNamespace]:
    if reason := unavailable():
        pytest.skip(reason)
    with NetworkNamespace() as namespace:
        for address in (PUBLIC_V4, PUBLIC_V6, *INWARD[:-1]):
            namespace.add_address(address)
        namespace.black_hole(DEAD_V4)
        namespace.black_hole(DEAD_V6)
        yield namespace


@pytest.fixture(scope="module")
def names(net: NetworkNamespace) -> Iterator[DnsStub]:
    with net.entered(), DnsStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def origins(net: NetworkNamespace) -> Iterator[dict[str, EchoOrigin]]:
    """An origin on the same port of every address that is at home here."""
    with net.entered(), ExitStack() as stack:
        bound = (*INWARD, "127.0.0.1", PUBLIC_V4, PUBLIC_V6)
        yield {one: stack.enter_context(EchoOrigin(bind=one, port=PORT)) for one in bound}


@pytest.fixture(scope="module")
def running(net: NetworkNamespace, names: DnsStub) -> Iterator[Service]:
    private = ("--allow-private", "*.in.example:*", "--allow", "10.1.2.3:*", "--allow", "localhost:*")
    allow = ("--allow", f"*.pub.example:{PORT}", *private, "--connect-timeout", "3")
    with net.entered(), Service(*allow, "--resolver", names.address) as service:
        yield service


@pytest.fixture
def service(running: Service, net: NetworkNamespace) -> Iterator[Service]:
    with net.entered():
        yield running
        running.close_sockets()


def reached(service: Service, target: str, origin: EchoOrigin) -> None:
    before = origin.connections_accepted
    assert read_exactly(service.tunnel(target, extra=b"HELLO"), 5) == b"HELLO"
    assert origin.connections_accepted == before + 1


def time_to_200(service: Service, target: str) -> float:
    begun = time.monotonic()
    service.tunnel(target)
    return time.monotonic() - begun


@pytest.mark.parametrize("address", [PUBLIC_V4, PUBLIC_V6])
def test_public_addresses_are_reached(
    service: Service, names: DnsStub, origins: dict[str, EchoOrigin], address: str
) -> None:
    names.add(f"p{len(address)}.pub.example", address)
    reached(service, f"p{len(address)}.pub.example:{PORT}", origins[address])


@pytest.mark.parametrize("address", INWARD)
def test_a_private_entry_leads_inward_and_a_plain_one_does_not(
    service: Service, names: DnsStub, origins: dict[str, EchoOrigin], address: str
) -> None:
    label = address.replace(".", "-").replace(":", "-")
    for domain in ("in.example", "pub.example"):
        names.add(f"a{label}.{domain}", address)
    before = origins[address].connections_accepted
    plain = f"a{label}.pub.example:{PORT}"
    assert refusals(service, (plain,)) == {plain: BAD_ADDRESS}
    assert origins[address].connections_accepted == before
    reached(service, f"a{label}.in.example:{PORT}", origins[address])


def test_a_literal_entry_opens_exactly_that_address(
    service: Service, names: DnsStub, origins: dict[str, EchoOrigin]
) -> None:
    reached(service, f"10.1.2.3:{PORT}", origins["10.1.2.3"])
    reached(service, f"[::ffff:10.1.2.3]:{PORT}", origins["10.1.2.3"])
    reached(service, f"localhost:{PORT}", origins["127.0.0.1"])
    names.add("literal.pub.example", "10.1.2.3")
    target = f"literal.pub.example:{PORT}"
    assert refusals(service, (target,)) == {target: BAD_ADDRESS}


def test_of_mixed_answers_only_those_that_may_be_are_dialled(
    service: Service, names: DnsStub, origins: dict[str, EchoOrigin]
) -> None:
    inward = [origins[a] for a in (*INWARD, "127.0.0.1")]
    before = [origin.connections_accepted for origin in inward]
    names.add("mixed4.pub.example", "127.0.0.9", "10.1.2.3", PUBLIC_V4, "169.254.169.254")
    names.add("mixed6.pub.example", "::1", "fd00::7", "::ffff:10.1.2.3", PUBLIC_V6)
    names.add("families.pub.example", PUBLIC_V4, "::1")
    for name, address in (("mixed4", PUBLIC_V4), ("mixed6", PUBLIC_V6), ("families", PUBLIC_V4)):
        for _ in range(3):
            reached(service, f"{name}.pub.example:{PORT}", origins[address])
    assert [origin.connections_accepted for origin in inward] == before
    names.add("metadata-too.in.example", "169.254.169.254", "10.1.2.3")
    reached(service, f"metadata-too.in.example:{PORT}", origins["10.1.2.3"])


def test_the_judged_address_is_the_one_that_is_dialled(
    service: Service, names: DnsStub, origins: dict[str, EchoOrigin]
) -> None:
    """A name that turns inward after the first lookup (rebinding) is looked up once a connection."""
    names.add_in_turn("rebind.pub.example", [PUBLIC_V4], ["127.0.0.9"], ttl=0)
    target = f"rebind.pub.example:{PORT}"
    reached(service, target, origins[PUBLIC_V4])
    assert (names.queries("rebind.pub.example", "A"), names.queries("rebind.pub.example", "AAAA")) == (1, 1)
    before = origins["127.0.0.9"].connections_accepted
    for _ in range(3):
        assert refusals(service, (target,)) == {target: BAD_ADDRESS}
    assert origins["127.0.0.9"].connections_accepted == before


DEAD_FIRST: dict[str, tuple[str, ...]] = {
    "IPv6 is a black hole": ("2606:4700::1111", PUBLIC_V4),
    "two IPv6 black holes": ("2606:4700::1111", "2606:4700::1112", PUBLIC_V4),
    "an IPv4 black hole": ("9.9.9.9", PUBLIC_V4),
    "black holes of both": ("2606:4700::1111", "9.9.9.9", "2606:4700::1112", "9.9.9.8", PUBLIC_V4),
    "IPv4 is a black hole": ("9.9.9.9", PUBLIC_V6),
}


@pytest.mark.parametrize("addresses", DEAD_FIRST.values(), ids=DEAD_FIRST.keys())
def test_a_dead_first_address_costs_less_than_2_s(
    service: Service,
    names: DnsStub,
    origins: dict[str, EchoOrigin],
    addresses: tuple[str, ...],
) -> None:
    name = f"dead{next(_NUMBERS)}.pub.example"
    names.add(name, *addresses)
    begun = time.monotonic()
    reached(service, f"{name}:{PORT}", origins[addresses[-1]])
    assert time.monotonic() - begun < 2


def test_a_refusing_first_address_costs_nothing(
    service: Service, names: DnsStub, origins: dict[str, EchoOrigin]
) -> None:
    names.add("refusing.in.example", "127.0.0.3", "127.0.0.4", "127.0.0.9")
    assert time_to_200(service, f"refusing.in.example:{PORT}") < 1
    names.add("all-refuse.in.example", "127.0.0.3", "127.0.0.4", "::ffff:127.0.0.5")
    begun = time.monotonic()
    target = f"all-refuse.in.example:{PORT}"
    assert refusals(service, (target,)) == {target: UNREACHABLE}
    assert time.monotonic() - begun < 1


def test_black_holes_alone_are_504_in_the_connect_time(service: Service, names: DnsStub) -> None:
    names.add("hole.pub.example", "2606:4700::1111", "9.9.9.9")
    target = f"hole.pub.example:{PORT}"
    begun = time.monotonic()
    assert refusals(service, (target,)) == {target: TIMEOUT}
    assert 2.9 < time.monotonic() - begun < 6


def test_no_200_before_the_connection_stands(service: Service, names: DnsStub) -> None:
    with StuckOrigin() as stuck, closed_port() as closed:
        targets = {f"localhost:{stuck.port}": TIMEOUT, f"localhost:{closed}": UNREACHABLE}
        assert refusals(service, targets) == targets


def test_nothing_was_asked_for_by_a_spelling_of_its_own(service: Service, names: DnsStub) -> None:
    targets = [f"evil{n}.test:{PORT}" for n in range(5)]
    before = names.total_queries
    assert refusals(service, targets) == all_are(Refusal(403, "blocked-by-allowlist"), targets)
    assert names.total_queries == before
