"""The stub name server against dnspython's own stub resolver and query functions.

Nothing of the product is used here.
See ../dns_stub.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import dns.resolver
import pytest

from tests.support.dns_stub import DnsStub, Query


@pytest.fixture
def stub() -> Iterator[DnsStub]:
    with DnsStub() as running:
        yield running


def resolve(stub: DnsStub, name: str, rdtype: str = "A", lifetime_s: float = 3) -> list[str]:
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = ["127.0.0.1"]
    resolver.port = stub.port
    return [r.to_text() for r in resolver.resolve(name, rdtype, lifetime=lifetime_s, search=False)]


def ask_udp(stub: DnsStub, name: str, rdtype: str = "A") -> dns.message.Message:
    query = dns.message.make_query(name, rdtype)
    return dns.query.udp(query, "127.0.0.1", port=stub.port, timeout=3)


def test_addresses_are_answered_by_family_in_order_and_counted(stub: DnsStub) -> None:
    stub.add("ok.example", "127.0.0.2", "::1", "127.0.0.1", ttl=7)
    assert resolve(stub, "OK.Example.") == ["127.0.0.2", "127.0.0.1"]
    assert resolve(stub, "ok.example", "AAAA") == ["::1"]
    assert (stub.queries("oK.example"), stub.queries("ok.example", "A")) == (2, 1)
    assert stub.total_queries == 2
    assert stub.log[0] == Query("OK.Example", "A", "udp")
    assert ask_udp(stub, "ok.example").answer[0].ttl == 7


def test_an_unknown_name_is_nxdomain_with_an_soa(stub: DnsStub) -> None:
    stub.nxdomain("gone.example", negative_ttl=9)
    for name, ttl in [("gone.example", 9), ("never.example", 60)]:
        answer = ask_udp(stub, name)
        assert answer.rcode() == dns.rcode.NXDOMAIN
        assert answer.authority[0].rdtype == dns.rdatatype.SOA
        assert answer.authority[0].ttl == ttl
        with pytest.raises(dns.resolver.NXDOMAIN):
            resolve(stub, name)


def test_a_name_without_the_type_is_nodata(stub: DnsStub) -> None:
    stub.nodata("empty.example")
    stub.add("four.example", "127.0.0.2")
    for name in ("empty.example", "four.example"):
        with pytest.raises(dns.resolver.NoAnswer):
            resolve(stub, name, "AAAA")


def test_servfail_is_servfail(stub: DnsStub) -> None:
    stub.servfail("sick.example")
    assert ask_udp(stub, "sick.example").rcode() == dns.rcode.SERVFAIL


def test_alias_chains_are_followed_and_a_loop_ends(stub: DnsStub) -> None:
    stub.cname("a.example", "b.example")
    stub.cname("b.example", "c.test")
    stub.add("c.test", "127.0.0.2")
    stub.cname("loop.example", "loop.example")
    stub.cname("dangling.example", "nowhere.test")
    assert resolve(stub, "a.example") == ["127.0.0.2"]
    chain = ask_udp(stub, "a.example").answer
    assert [dns.rdatatype.to_text(s.rdtype) for s in chain] == ["CNAME", "CNAME", "A"]
    assert ask_udp(stub, "loop.example").rcode() == dns.rcode.NOERROR
    assert ask_udp(stub, "dangling.example").rcode() == dns.rcode.NXDOMAIN


def test_a_black_hole_never_answers_but_counts(stub: DnsStub) -> None:
    stub.black_hole("hole.example")
    with pytest.raises(dns.resolver.LifetimeTimeout):
        resolve(stub, "hole.example", lifetime_s=0.2)
    assert stub.queries("hole.example") >= 1


def test_a_slow_name_delays_no_other(stub: DnsStub) -> None:
    stub.add("slow.example", "127.0.0.2")
    stub.delay("slow.example", 0.4)
    stub.add("quick.example", "127.0.0.1")
    took: list[float] = []

    def ask_slowly() -> None:
        begun = time.monotonic()
        assert resolve(stub, "slow.example") == ["127.0.0.2"]
        took.append(time.monotonic() - begun)

    thread = threading.Thread(target=ask_slowly)
    thread.start()
    stub.wait_for_queries("slow.example", 1)
    begun = time.monotonic()
    assert resolve(stub, "quick.example") == ["127.0.0.1"]
    assert time.monotonic() - begun < 0.3
    thread.join(5)
    assert took[0] >= 0.4


def test_truncated_udp_leads_to_the_whole_answer_over_tcp(stub: DnsStub) -> None:
    stub.add("cut.example", "127.0.0.2")
    stub.truncate("cut.example")
    assert ask_udp(stub, "cut.example").flags & dns.flags.TC
    assert resolve(stub, "cut.example") == ["127.0.0.2"]
    assert [q.transport for q in stub.log] == ["udp", "udp", "tcp"]


def test_an_answer_too_long_for_udp_is_truncated_by_size(stub: DnsStub) -> None:
    many = [f"127.0.1.{i}" for i in range(1, 200)]
    stub.add("many.example", *many)
    assert ask_udp(stub, "many.example").flags & dns.flags.TC
    assert resolve(stub, "many.example") == many


def test_wildcards_answer_where_no_own_record_does(stub: DnsStub) -> None:
    stub.add("*", "127.0.0.9")
    stub.add("*.wild.example", "127.0.0.8")
    stub.nxdomain("not.wild.example")
    assert resolve(stub, "any.thing.test") == ["127.0.0.9"]
    assert resolve(stub, "a.b.wild.example") == ["127.0.0.8"]
    with pytest.raises(dns.resolver.NXDOMAIN):
        resolve(stub, "not.wild.example")


def test_answers_in_turn_change_from_query_to_query(stub: DnsStub) -> None:
    stub.add_in_turn("rebind.example", ["127.0.0.2"], ["169.254.169.254"])
    seen = [resolve(stub, "rebind.example") for _ in range(3)]
    assert seen == [["127.0.0.2"], ["169.254.169.254"], ["169.254.169.254"]]
    stub.add("rebind.example", "127.0.0.3")
    assert resolve(stub, "rebind.example") == ["127.0.0.3"]


def test_the_zone_may_change_while_it_runs(stub: DnsStub) -> None:
    stub.add("x.example", "127.0.0.2")
    stub.delay("x.example", 60)
    stub.remove("x.example")
    with pytest.raises(dns.resolver.NXDOMAIN):
        resolve(stub, "x.example")


def test_waiting_for_queries_has_a_deadline_and_names_what_is_missing(stub: DnsStub) -> None:
    with pytest.raises(TimeoutError, match=r"2 queries for x\.example"):
        stub.wait_for_queries("x.example", 2, timeout_s=0.05)


def test_a_mutable_counter_can_be_reset(stub: DnsStub) -> None:
    stub.add("x.example", "127.0.0.2")
    resolve(stub, "x.example")
    stub.reset_counters()
    assert (stub.total_queries, stub.queries("x.example"), stub.log) == (0, 0, [])
