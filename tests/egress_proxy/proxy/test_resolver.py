"""Rules of asking: both families at once, whole chains, and no answer or setting that breaks anything.

A real DNS server on loopback (tests/support/dns_stub.py); what is shared and kept is in test_name_cache.py.
See egress_proxy/proxy/resolver.py.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

import dns.asyncresolver
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from egress_proxy.core.host import Name
from egress_proxy.core.seams import Answer
from egress_proxy.proxy import resolver
from egress_proxy.proxy.hosts_file import HostsFile
from egress_proxy.proxy.name_cache import Found, NameCache
from egress_proxy.proxy.resolver import HALF_TTL_S, NEGATIVE_TTL_S, TTL_LIMIT_S, DnsLookup, NameServer
from tests.conftest import Start
from tests.egress_proxy.proxy.stream_ends import descriptors
from tests.support.deadline import eventually
from tests.support.dns_server import Answerer, DnsServer, Reply
from tests.support.dns_stub import DnsStub
from tests.support.origins import closed_port

LOCALHOST = ip_address("127.0.0.1")
NOT_FOUND = Found(Answer(()), NEGATIVE_TTL_S, "the name does not exist")
EMPTY = Found(Answer(()), NEGATIVE_TTL_S, "the name has no addresses")
FAILED = Found(Answer(()), 0.0, "the DNS server failed")
LATE = Found(Answer(()), 0.0, "no DNS server answered in time", timed_out=True)
UNSET = Found(Answer(()), NEGATIVE_TTL_S, "this machine has no DNS server configured")
ONE_FAMILY_S = 1.0  # what a family that never answers may cost, at most


class HalfDeaf(DnsStub):
    """Never answers queries of one type, as many forwarders do with AAAA."""

    def __init__(self, deaf_to: str) -> None:
        super().__init__()
        self.deaf_to = deaf_to

    def _answer(self, wire: bytes, transport: str) -> Reply | None:
        reply = super()._answer(wire, transport)
        return None if type_asked(wire) == self.deaf_to else reply


def type_asked(wire: bytes) -> str:
    return dns.rdatatype.to_text(dns.message.from_wire(wire).question[0].rdtype)


def lookup_at(port: int) -> DnsLookup:
    return DnsLookup(NameServer(LOCALHOST, port))


@contextlib.contextmanager
def served(answerer: Answerer) -> Iterator[int]:
    """The port of a server that answers what the callable makes up."""
    server = DnsServer(answerer)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


async def found(stub: DnsStub, name: str) -> Found:
    return await lookup_at(stub.port)(Name(name))


def texts(found: Found) -> list[str]:
    return [str(address) for address in found.answer.addresses]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no server answers ends sooner."""
    monkeypatch.setattr(resolver, "QUERY_TIMEOUT_S", 0.3)


# Answers


async def test_both_families_are_asked_once_and_come_in_dialling_order(dns: DnsStub) -> None:
    dns.add("ok.example", "192.0.2.1", "2001:db8::1", "192.0.2.2", ttl=60)
    answer = await found(dns, "ok.example")
    assert texts(answer) == ["2001:db8::1", "192.0.2.1", "192.0.2.2"]
    assert (answer.ttl_s, answer.failure, answer.timed_out) == (60, "", False)
    assert dns.queries("ok.example", "A") == dns.queries("ok.example", "AAAA") == 1
    assert dns.total_queries == 2


async def test_one_family_is_enough(dns: DnsStub) -> None:
    dns.add("four.example", "192.0.2.1", ttl=60)
    dns.add("six.example", "2001:db8::1", ttl=60)
    assert texts(await found(dns, "four.example")) == ["192.0.2.1"]
    assert texts(await found(dns, "six.example")) == ["2001:db8::1"]


async def test_a_name_is_asked_for_as_it_is_without_search_domains(
    dns: DnsStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_asks(dns, "search corp.example\noptions ndots:5\nnameserver 127.0.0.1\n", tmp_path, monkeypatch)
    dns.add("api.corp.example", "192.0.2.1")
    assert await DnsLookup(None)(Name("api")) == NOT_FOUND
    assert {query.name for query in dns.log} == {"api"}


async def test_the_names_of_a_chain_reach_the_answer(dns: DnsStub) -> None:
    dns.cname("www.example", "Edge.CDN.example")
    dns.cname("edge.cdn.example", "metadata.google.internal")
    dns.add("metadata.google.internal", "192.0.2.1", ttl=60)
    answer = await found(dns, "www.example")
    assert texts(answer) == ["192.0.2.1"]
    assert answer.answer.chain == ("edge.cdn.example", "metadata.google.internal")


async def test_a_chain_that_leads_to_nothing_is_kept_too(dns: DnsStub) -> None:
    dns.cname("www.example", "metadata.google.internal")
    dns.nodata("metadata.google.internal")
    answer = await found(dns, "www.example")
    assert answer == Found(Answer((), ("metadata.google.internal",)), NEGATIVE_TTL_S, EMPTY.failure)


async def test_an_answer_is_as_good_as_its_shortest_part(dns: DnsStub) -> None:
    dns.cname("www.example", "edge.example", ttl=20)
    dns.add("edge.example", "192.0.2.1", ttl=60)
    assert (await found(dns, "www.example")).ttl_s == 20
    dns.add("edge.example", "192.0.2.1", ttl=7)
    assert (await found(dns, "www.example")).ttl_s == 7


@pytest.mark.parametrize(("ttl", "kept_s"), [(0, 0), (1, 1), (299, 299), (86_400, TTL_LIMIT_S)])
async def test_no_answer_is_kept_for_longer_than_a_person_would_wait(
    ttl: int, kept_s: float, dns: DnsStub
) -> None:
    dns.add("ok.example", "192.0.2.1", ttl=ttl)
    assert (await found(dns, "ok.example")).ttl_s == kept_s


async def test_an_answer_too_long_for_a_datagram_is_fetched_whole(dns: DnsStub) -> None:
    many = [f"192.0.2.{number}" for number in range(200)]
    dns.add("many.example", *many)
    assert texts(await found(dns, "many.example")) == many
    dns.add("cut.example", "192.0.2.1")
    dns.truncate("cut.example")
    assert texts(await found(dns, "cut.example")) == ["192.0.2.1"]
    assert {query.transport for query in dns.log} == {"udp", "tcp"}


# No answers


async def test_a_name_that_does_not_exist_is_told_and_remembered_shortly(dns: DnsStub) -> None:
    assert await found(dns, "gone.example") == NOT_FOUND


async def test_a_name_without_addresses_is_told_apart(dns: DnsStub) -> None:
    dns.nodata("mail.example")
    assert await found(dns, "mail.example") == EMPTY


@pytest.mark.parametrize(
    "rcode", [dns.rcode.SERVFAIL, dns.rcode.REFUSED, dns.rcode.NOTIMP, dns.rcode.FORMERR]
)
async def test_a_failing_server_is_no_missing_name_and_not_remembered(
    rcode: dns.rcode.Rcode, dns: DnsStub
) -> None:
    dns.fail("sick.example", rcode)
    begun = time.monotonic()
    assert await found(dns, "sick.example") == FAILED
    assert time.monotonic() - begun < ONE_FAMILY_S


@pytest.mark.usefixtures("short")
async def test_no_server_at_all_is_a_timeout() -> None:
    with closed_port() as port:
        assert await lookup_at(port)(Name("ok.example")) == LATE


@pytest.mark.usefixtures("short")
async def test_silence_is_a_timeout_and_not_remembered(dns: DnsStub) -> None:
    dns.black_hole("hole.example")
    assert await found(dns, "hole.example") == LATE


@pytest.mark.parametrize("deaf_to", ["A", "AAAA"])
async def test_a_family_that_never_answers_hardly_delays_the_other(deaf_to: str, start: Start) -> None:
    stub = start(HalfDeaf(deaf_to))
    stub.add("ok.example", "192.0.2.1", "2001:db8::1")
    begun = time.monotonic()
    answer = await found(stub, "ok.example")
    assert time.monotonic() - begun < ONE_FAMILY_S
    assert texts(answer) == [{"A": "2001:db8::1", "AAAA": "192.0.2.1"}[deaf_to]]


@pytest.mark.usefixtures("short")
async def test_a_family_that_never_answers_is_waited_for_where_the_other_has_nothing(start: Start) -> None:
    stub = start(HalfDeaf("A"))
    stub.nodata("ok.example")
    assert await found(stub, "ok.example") == LATE


@pytest.mark.parametrize("failing", ["A", "AAAA"])
@pytest.mark.parametrize("is_silent", [True, False])
async def test_half_an_answer_is_kept_for_a_moment_only(failing: str, is_silent: bool, start: Start) -> None:
    """Else a query that was lost would cost a family for the whole time of the other."""

    class HalfSick(HalfDeaf):
        def _answer(self, wire: bytes, transport: str) -> Reply | None:
            if type_asked(wire) != self.deaf_to or is_silent:
                return super()._answer(wire, transport)
            sick = dns.message.make_response(dns.message.from_wire(wire))
            sick.set_rcode(dns.rcode.SERVFAIL)
            return Reply(sick.to_wire())

    stub = start(HalfSick(failing))
    stub.add("ok.example", "192.0.2.1", "2001:db8::1", ttl=60)
    assert (await found(stub, "ok.example")).ttl_s == HALF_TTL_S
    stub.add("ok.example", "192.0.2.1", "2001:db8::1", ttl=0)
    assert (await found(stub, "ok.example")).ttl_s == 0


async def test_a_family_without_addresses_is_no_missing_half(dns: DnsStub) -> None:
    dns.add("four.example", "192.0.2.1", ttl=60)
    assert (await found(dns, "four.example")).ttl_s == 60


async def test_a_late_family_still_counts_within_its_time(start: Start) -> None:
    class Slow(HalfDeaf):
        def _answer(self, wire: bytes, transport: str) -> Reply | None:
            reply = DnsStub._answer(self, wire, transport)
            late = type_asked(wire) == self.deaf_to
            return Reply(reply.wire, 0.05) if reply and late else reply

    stub = start(Slow("AAAA"))
    stub.add("ok.example", "192.0.2.1", "2001:db8::1")
    assert texts(await found(stub, "ok.example")) == ["2001:db8::1", "192.0.2.1"]


async def test_an_alias_that_leads_in_a_circle_ends(dns: DnsStub) -> None:
    dns.cname("a.example", "b.example")
    dns.cname("b.example", "a.example")
    begun = time.monotonic()
    answer = await found(dns, "a.example")
    assert time.monotonic() - begun < ONE_FAMILY_S
    assert answer.answer.addresses == ()
    assert answer.failure


@pytest.mark.usefixtures("short")
async def test_no_answer_of_a_hostile_server_raises() -> None:
    """Damaged in every way that chance finds, and cut; the seed makes a failure come back."""
    chance = random.Random(11)

    def answer(query: bytes, transport: str) -> Reply:
        response = dns.message.make_response(dns.message.from_wire(query))
        asked = response.question[0].name.to_text()
        for owner, kind, text in [(asked, "CNAME", "x.example."), ("x.example.", "A", "192.0.2.1")]:
            response.answer.append(dns.rrset.from_text(owner, 5, "IN", kind, text))
        wire = bytearray(response.to_wire())
        for _ in range(chance.randrange(1, 6)):
            wire[chance.randrange(2, len(wire))] = chance.randrange(256)
        return Reply(bytes(wire[: chance.randrange(2, len(wire) + 8)]))

    with served(answer) as port:
        lookup = lookup_at(port)
        outcomes = await asyncio.gather(*(lookup(Name(f"n{number}.example")) for number in range(300)))
    assert {type(outcome) for outcome in outcomes} == {Found}
    assert all(outcome.answer.addresses or outcome.failure for outcome in outcomes)


class Guessed(asyncio.DatagramProtocol):
    """Before each true answer come guesses by somebody who cannot see the query."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        query = dns.message.from_wire(data)
        other_id, other_name = dns.message.from_wire(data), dns.message.from_wire(data)
        other_id.id ^= 1
        other_name.question[0].name = dns.name.from_text("other.example.")
        for asked, address in [
            (other_id, "203.0.113.66"),
            (other_name, "203.0.113.66"),
            (query, "192.0.2.1"),
        ]:
            response = dns.message.make_response(asked)
            response.answer.append(dns.rrset.from_text(query.question[0].name, 60, "IN", "A", address))
            self.transport.sendto(response.to_wire(), addr)


async def test_an_answer_to_another_question_is_passed_over() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Guessed, local_addr=("127.0.0.1", 0))
    try:
        answer = await lookup_at(transport.get_extra_info("sockname")[1])(Name("ok.example"))
    finally:
        transport.close()
    assert texts(answer) == ["192.0.2.1"]


# Many at once, with the cache


async def test_fifty_who_ask_at_once_cost_one_lookup_for_each_family(dns: DnsStub, tmp_path: Path) -> None:
    dns.add("ok.example", "192.0.2.1", "2001:db8::1", ttl=60)
    dns.delay("ok.example", 0.1)
    async with NameCache(lookup_at(dns.port), HostsFile(tmp_path / "none"), time.monotonic) as cache:
        answers = await asyncio.gather(*(cache.resolve(Name("ok.example")) for _ in range(50)))
        assert len(set(answers)) == 1
        assert (dns.queries("ok.example", "A"), dns.queries("ok.example", "AAAA")) == (1, 1)
        await cache.resolve(Name("ok.example"))
        assert dns.total_queries == 2


async def test_a_name_is_asked_for_again_when_its_time_is_over(dns: DnsStub, tmp_path: Path) -> None:
    now = [0.0]
    dns.add_in_turn("rebind.example", ["192.0.2.1"], ["127.0.0.1"], ttl=30)
    async with NameCache(lookup_at(dns.port), HostsFile(tmp_path / "none"), lambda: now[0]) as cache:
        seen = []
        for now[0] in (0, 29, 30):
            seen += [str(address) for address in (await cache.resolve(Name("rebind.example"))).addresses]
    assert seen == ["192.0.2.1", "192.0.2.1", "127.0.0.1"]
    assert dns.queries("rebind.example", "A") == 2


async def test_slow_names_below_one_parent_do_not_hold_up_another(dns: DnsStub, tmp_path: Path) -> None:
    dns.black_hole("*.slow.example")
    dns.add("ok.other.example", "192.0.2.1")
    async with NameCache(lookup_at(dns.port), HostsFile(tmp_path / "none"), time.monotonic) as cache:
        loop = asyncio.get_running_loop()
        slow = [loop.create_task(cache.resolve(Name(f"n{number}.slow.example"))) for number in range(100)]
        await asyncio.to_thread(dns.wait_for_queries, "n15.slow.example", 1)
        async with asyncio.timeout(ONE_FAMILY_S):
            assert (await cache.resolve(Name("ok.other.example"))).addresses
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_a_lookup_that_is_given_up_leaves_nothing_behind(dns: DnsStub) -> None:
    dns.black_hole("hole.example")
    dns.add("ok.example", "192.0.2.1", "2001:db8::1")
    await found(dns, "ok.example")
    tasks, before = asyncio.all_tasks(), descriptors()
    for turn in range(20):
        task = asyncio.get_running_loop().create_task(
            found(dns, "hole.example" if turn % 2 else "ok.example")
        )
        for _ in range(turn):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert asyncio.all_tasks() == tasks
    await asyncio.to_thread(eventually, lambda: descriptors() <= before)


# The system's servers


def system_asks(stub: DnsStub, text: str | bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Read this resolv.conf, at the stub's port: the file can name none."""

    class AtPort(dns.asyncresolver.Resolver):
        def reset(self) -> None:
            super().reset()
            self.port = stub.port

    path = tmp_path / "resolv.conf"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    monkeypatch.setattr(resolver, "_RESOLV_CONF", str(path))
    monkeypatch.setattr(dns.asyncresolver, "Resolver", AtPort)
    return path


async def test_the_systems_server_is_asked(
    dns: DnsStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_asks(dns, "# ours\nnameserver 127.0.0.1\n", tmp_path, monkeypatch)
    dns.add("ok.example", "192.0.2.1")
    assert texts(await DnsLookup(None)(Name("ok.example"))) == ["192.0.2.1"]


async def test_a_server_that_is_set_is_asked_and_the_systems_is_not(
    dns: DnsStub, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = start(DnsStub())
    system_asks(other, "nameserver 127.0.0.1\n", tmp_path, monkeypatch)
    dns.add("ok.example", "192.0.2.1")
    assert texts(await found(dns, "ok.example")) == ["192.0.2.1"]
    assert other.total_queries == 0


@pytest.mark.usefixtures("short")
async def test_the_systems_servers_are_read_again_when_they_change(
    dns: DnsStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = system_asks(dns, "nameserver 127.0.0.1\n", tmp_path, monkeypatch)
    dns.add("ok.example", "192.0.2.1")
    lookup = DnsLookup(None)
    assert texts(await lookup(Name("ok.example"))) == ["192.0.2.1"]
    path.unlink()
    assert await lookup(Name("ok.example")) == UNSET
    path.write_text("nameserver 127.0.0.1\n")
    assert texts(await lookup(Name("ok.example"))) == ["192.0.2.1"]
    new = tmp_path / "new"
    new.write_text("nameserver 127.0.0.77\n")  # nobody answers there
    new.rename(path)
    assert await lookup(Name("ok.example")) == LATE


@pytest.mark.parametrize(
    "text", [b"", b"search example\n", b"nameserver\n", b"nameserver dns.example\n", b"\x00\xff\xfe"]
)
async def test_a_resolv_conf_that_names_no_server_is_as_good_as_none(
    text: bytes, dns: DnsStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = system_asks(dns, text, tmp_path, monkeypatch)
    dns.add("ok.example", "192.0.2.1")
    lookup = DnsLookup(None)
    assert await lookup(Name("ok.example")) == UNSET
    path.write_text("nameserver 127.0.0.1\n")
    assert texts(await lookup(Name("ok.example"))) == ["192.0.2.1"]


@pytest.mark.parametrize(
    "line",
    [
        b"nameserver not-an-address",
        b"nameserver https://dns.example/dns-query",
        b"search a..b",
        b"domain " + b"a" * 64 + b".example",
        b"# caf\xe9",
        b"options timeout:soon ndots edns0",
        b"sortlist \xff",
    ],
)
async def test_a_line_that_cannot_be_used_costs_no_other(
    line: bytes, dns: DnsStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_asks(dns, line + b"\n  nameserver 127.0.0.1 # ours\r\n" + line, tmp_path, monkeypatch)
    dns.add("ok.example", "192.0.2.1")
    assert texts(await DnsLookup(None)(Name("ok.example"))) == ["192.0.2.1"]


async def test_a_machine_without_resolv_conf_has_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "_RESOLV_CONF", str(tmp_path / "none"))
    assert await DnsLookup(None)(Name("ok.example")) == UNSET
