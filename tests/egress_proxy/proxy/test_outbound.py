"""Rules of the one road outside: look up, judge every address, dial the judged ones, all in one time.

A real name server and real sockets; which class an address is of is core/dial_policy.py's, tested there.
See egress_proxy/proxy/outbound.py.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from ipaddress import IPv4Address, ip_address
from pathlib import Path

import pytest

from egress_proxy.core.decision import Allow, Deny, OptIn, Reason
from egress_proxy.core.host import Name, Target, parse_authority
from egress_proxy.core.policy import rule_index
from egress_proxy.core.seams import Answer
from egress_proxy.proxy import dialer, resolver
from egress_proxy.proxy.hosts_file import HostsFile
from egress_proxy.proxy.name_cache import NameCache
from egress_proxy.proxy.outbound import Outbound
from egress_proxy.proxy.resolver import DnsLookup, NameServer
from tests.conftest import Start
from tests.egress_proxy.core.entries import deny_entry
from tests.egress_proxy.proxy.stream_ends import descriptors
from tests.support.dns_stub import DnsStub
from tests.support.netns import NetworkNamespace
from tests.support.origins import EchoOrigin, StuckOrigin, closed_port

NAME = "ok.example"
TIMEOUT_S = 5.0
REFUSED_S = 1.0
GOOD_S = 2.0


@contextlib.asynccontextmanager
async def road(
    dns: DnsStub, own: Collection[Target] = (), timeout_s: float = TIMEOUT_S
) -> AsyncIterator[Outbound]:
    lookup = DnsLookup(NameServer(IPv4Address("127.0.0.1"), dns.port))
    async with NameCache(lookup, HostsFile(Path("/nowhere/hosts")), time.monotonic) as names:
        yield Outbound(names.resolve, lambda: own, timeout_s, names.ready)


def allowed(authority: str, opt_in: OptIn = OptIn.INWARD) -> Allow:
    return Allow(parse_authority(authority), "the entry", opt_in)


async def reached(road: Outbound, allow: Allow) -> str:
    """The address that was connected."""
    connected = await road.connect(allow)
    assert not isinstance(connected, Deny), connected
    sock, address, _ = connected
    with sock:
        assert sock.getpeername()[:2] == (str(address), allow.target.port)
    return str(address)


async def refused(road: Outbound, allow: Allow, reason: Reason) -> Deny:
    deny = await road.connect(allow)
    assert isinstance(deny, Deny)
    assert (deny.reason, deny.target, deny.rule) == (reason, allow.target, "the entry")
    return deny


# Judged


async def test_a_name_that_leads_inside_is_not_dialled_unless_its_entry_says_so(
    dns: DnsStub, start: Start
) -> None:
    origin = start(EchoOrigin("127.0.0.2"))
    dns.add(NAME, "127.0.0.2")
    async with road(dns) as out:
        authority = f"{NAME}:{origin.port}"
        deny = await refused(out, allowed(authority, OptIn.NONE), Reason.ADDRESS_NOT_PUBLIC)
        assert "loopback" in deny.detail
        assert "127.0.0.2" not in deny.detail
        assert origin.connections_accepted == 0
        assert await reached(out, allowed(authority, OptIn.INWARD)) == "127.0.0.2"


async def test_of_mixed_answers_only_the_judged_ones_are_dialled(dns: DnsStub, start: Start) -> None:
    bad = start(EchoOrigin("127.0.0.2"))
    good = start(EchoOrigin("127.0.0.3", bad.port))
    dns.add(NAME, "0.0.0.0", "127.0.0.2", "169.254.169.254", "127.0.0.3")
    own = [Target(ip_address("127.0.0.2"), bad.port)]
    async with road(dns, own) as out:
        assert await reached(out, allowed(f"{NAME}:{bad.port}")) == "127.0.0.3"
    good.wait_for_connections(1)
    assert bad.connections_accepted == 0


async def test_our_own_listeners_are_never_dialled(dns: DnsStub, start: Start) -> None:
    origin = start(EchoOrigin())
    dns.add(NAME, "127.0.0.1")
    own = [Target(ip_address("127.0.0.1"), origin.port)]
    async with road(dns, own) as out:
        await refused(out, allowed(f"{NAME}:{origin.port}"), Reason.OWN_LISTENER)
        await refused(out, allowed(f"127.0.0.1:{origin.port}", OptIn.LITERAL), Reason.OWN_LISTENER)
    assert origin.connections_accepted == 0


async def test_listeners_that_are_opened_later_count(dns: DnsStub, start: Start) -> None:
    origin = start(EchoOrigin())
    dns.add(NAME, "127.0.0.1")
    own: list[Target] = []
    async with road(dns, own) as out:
        assert await reached(out, allowed(f"{NAME}:{origin.port}")) == "127.0.0.1"
        own.append(Target(ip_address("127.0.0.1"), origin.port))
        await refused(out, allowed(f"{NAME}:{origin.port}"), Reason.OWN_LISTENER)


async def test_metadata_is_refused_by_address_and_by_any_name_of_the_chain(
    dns: DnsStub, start: Start
) -> None:
    origin = start(EchoOrigin("127.0.0.2"))
    dns.add("plain.example", "169.254.169.254")
    dns.cname("alias.example", "Metadata.Google.Internal")
    dns.cname("metadata.google.internal", "harmless.example")
    dns.add("harmless.example", "127.0.0.2")
    async with road(dns) as out:
        for name in ("plain.example", "alias.example"):
            await refused(out, allowed(f"{name}:{origin.port}"), Reason.METADATA)
    assert origin.connections_accepted == 0


async def test_an_address_that_an_entry_denies_is_not_dialled_by_any_name(dns: DnsStub, start: Start) -> None:
    denied = start(EchoOrigin("127.0.0.2"))
    good = start(EchoOrigin("127.0.0.3", denied.port))
    dns.add("mixed.example", "127.0.0.2", "127.0.0.3", ttl=60)
    dns.add("only.example", "127.0.0.2", ttl=60)
    rules = rule_index([deny_entry("127.0.0.2")])
    async with road(dns) as plain:
        out = replace(plain, denied=lambda: rules)
        assert await reached(out, allowed(f"mixed.example:{good.port}")) == "127.0.0.3"
        await refused(out, allowed(f"only.example:{good.port}"), Reason.DENIED_BY_RULE)
        assert out.ready(allowed(f"mixed.example:{good.port}")) == (ip_address("127.0.0.3"),)
    assert denied.connections_accepted == 0


async def test_a_literal_address_is_asked_of_nobody(dns: DnsStub, start: Start) -> None:
    origin, six = start(EchoOrigin("127.0.0.2")), start(EchoOrigin("::1"))
    async with road(dns) as out:
        assert await reached(out, allowed(f"127.0.0.2:{origin.port}", OptIn.LITERAL)) == "127.0.0.2"
        assert await reached(out, allowed(f"[::1]:{six.port}", OptIn.LITERAL)) == "::1"
        await refused(out, allowed(f"127.0.0.2:{origin.port}", OptIn.NONE), Reason.ADDRESS_NOT_PUBLIC)
    assert dns.total_queries == 0


async def test_what_was_judged_is_what_is_dialled(dns: DnsStub, start: Start) -> None:
    """DNS rebinding: a second look-up, had there been one, would lead elsewhere."""
    good = start(EchoOrigin("127.0.0.2"))
    other = start(EchoOrigin("127.0.0.3", good.port))
    dns.add_in_turn(NAME, ["127.0.0.2"], ["127.0.0.3"])
    async with road(dns) as out:
        assert await reached(out, allowed(f"{NAME}:{good.port}")) == "127.0.0.2"
    good.wait_for_connections(1)
    assert other.connections_accepted == 0
    assert dns.queries(NAME, "A") == 1


async def test_an_answer_is_judged_anew_each_time(dns: DnsStub, start: Start) -> None:
    first = start(EchoOrigin("127.0.0.2"))
    dns.add_in_turn(NAME, ["127.0.0.2"], ["169.254.169.254"])
    async with road(dns) as out:
        assert await reached(out, allowed(f"{NAME}:{first.port}")) == "127.0.0.2"
        await refused(out, allowed(f"{NAME}:{first.port}"), Reason.METADATA)


async def test_a_public_address_needs_no_word_of_its_entry(net: NetworkNamespace) -> None:
    with net.entered():
        net.add_address("93.184.216.34")
        with DnsStub() as dns, EchoOrigin("93.184.216.34") as origin:
            dns.add(NAME, "93.184.216.34", "10.0.0.1")
            async with road(dns) as out:
                assert await reached(out, allowed(f"{NAME}:{origin.port}", OptIn.NONE)) == "93.184.216.34"


async def test_a_broken_family_costs_a_moment(net: NetworkNamespace) -> None:
    """Case C20: the first answer is a black hole, with the look-up in the same time."""
    with net.entered():
        net.black_hole("2606:2800::/32")
        net.add_address("93.184.216.34")
        with DnsStub() as dns, EchoOrigin("93.184.216.34") as origin:
            dns.add(NAME, "2606:2800::1", "93.184.216.34")
            begun = time.monotonic()
            async with road(dns) as out:
                assert await reached(out, allowed(f"{NAME}:{origin.port}", OptIn.NONE)) == "93.184.216.34"
            assert time.monotonic() - begun < GOOD_S


# Without waiting


async def test_what_is_known_is_judged_without_waiting(dns: DnsStub) -> None:
    dns.add(NAME, "127.0.0.2", "169.254.169.254", ttl=60)
    own = [Target(ip_address("127.0.0.2"), 8899)]
    async with road(dns, own) as out:
        assert out.ready(allowed(f"{NAME}:443")) is None
        await out.resolve(Name(NAME))
        assert out.ready(allowed(f"{NAME}:443")) == (ip_address("127.0.0.2"),)
        for allow, reason in [
            (allowed(f"{NAME}:443", OptIn.NONE), Reason.METADATA),
            (allowed(f"{NAME}:8899"), Reason.METADATA),
            (allowed("127.0.0.2:8899"), Reason.OWN_LISTENER),
            (allowed("127.0.0.3:443", OptIn.NONE), Reason.ADDRESS_NOT_PUBLIC),
        ]:
            deny = out.ready(allow)
            assert isinstance(deny, Deny)
            assert (deny.reason, deny.target) == (reason, allow.target)
        assert dns.queries(NAME) == 2


def test_without_a_cache_a_name_is_always_waited_for_and_an_address_never() -> None:
    async def never(name: Name) -> Answer:
        raise AssertionError(name)

    out = Outbound(never, lambda: (), TIMEOUT_S)
    assert out.ready(allowed(f"{NAME}:443")) is None
    assert out.ready(allowed("127.0.0.2:443", OptIn.LITERAL)) == (ip_address("127.0.0.2"),)


# Why there is no connection


async def test_a_name_that_does_not_exist_or_cannot_be_asked_for_is_told(dns: DnsStub) -> None:
    dns.nodata("empty.example")
    dns.servfail("sick.example")
    async with road(dns) as out:
        for name, detail in [
            ("gone.example", "the name does not exist"),
            ("empty.example", "the name has no addresses"),
            ("sick.example", "the DNS server failed"),
        ]:
            deny = await refused(out, allowed(f"{name}:443"), Reason.NO_SUCH_NAME)
            assert deny.detail == detail


async def test_an_upstream_that_refuses_is_told_at_once(dns: DnsStub) -> None:
    dns.add(NAME, "127.0.0.1", "127.0.0.1")
    begun = time.monotonic()
    with closed_port() as port:
        async with road(dns) as out:
            deny = await refused(out, allowed(f"{NAME}:{port}"), Reason.UPSTREAM_REFUSED)
    assert deny.detail == "connection refused"
    assert time.monotonic() - begun < REFUSED_S


@pytest.mark.parametrize("binds", [["127.0.0.2"], ["127.0.0.2", "127.0.0.3"]])
async def test_a_dial_that_hangs_ends_in_time(binds: list[str], dns: DnsStub, start: Start) -> None:
    port = 0
    for bind in binds:
        port = start(StuckOrigin(bind, port)).port
    dns.add(NAME, *binds)
    before = descriptors()
    async with road(dns, timeout_s=0.4) as out:
        begun = time.monotonic()
        await refused(out, allowed(f"{NAME}:{port}"), Reason.UPSTREAM_TIMEOUT)
        assert time.monotonic() - begun < 0.4 + REFUSED_S
    assert descriptors() == before


async def test_a_look_up_that_hangs_ends_in_time(dns: DnsStub) -> None:
    dns.black_hole(NAME)
    async with road(dns, timeout_s=0.3) as out:
        begun = time.monotonic()
        await refused(out, allowed(f"{NAME}:443"), Reason.UPSTREAM_TIMEOUT)
        assert time.monotonic() - begun < 0.3 + REFUSED_S


async def test_a_look_up_that_is_given_up_before_the_dial_would_be_is_a_timeout_too(
    dns: DnsStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "QUERY_TIMEOUT_S", 0.1)
    dns.black_hole(NAME)
    async with road(dns) as out:
        await refused(out, allowed(f"{NAME}:443"), Reason.UPSTREAM_TIMEOUT)


async def test_look_up_and_dial_share_one_time(dns: DnsStub, start: Start) -> None:
    stuck = start(StuckOrigin("127.0.0.2"))
    dns.add(NAME, "127.0.0.2")
    dns.delay(NAME, 0.3)
    async with road(dns, timeout_s=0.5) as out:
        begun = time.monotonic()
        await refused(out, allowed(f"{NAME}:{stuck.port}"), Reason.UPSTREAM_TIMEOUT)
        assert time.monotonic() - begun < 0.75


async def test_who_gives_up_waiting_is_no_timeout_of_the_upstream(dns: DnsStub, start: Start) -> None:
    stuck = start(StuckOrigin("127.0.0.2"))
    dns.add(NAME, "127.0.0.2")
    async with road(dns) as out:
        task = asyncio.get_running_loop().create_task(out.connect(allowed(f"{NAME}:{stuck.port}")))
        await asyncio.to_thread(dns.wait_for_queries, NAME, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_the_time_may_run_out_in_any_moment_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the one in which the connection is made: then it is closed, and the answer is a refusal."""
    monkeypatch.setattr(dialer, "ATTEMPT_DELAY_S", 0.01)

    async def known(name: Name) -> Answer:
        return Answer((ip_address("127.0.0.3"), ip_address("127.0.0.2")))

    with StuckOrigin("127.0.0.3") as stuck, EchoOrigin("127.0.0.2", stuck.port) as good:
        before = descriptors()
        outcomes: set[Reason | None] = set()
        for step in range(100):
            out = Outbound(known, lambda: (), timeout_s=0.005 + step * 0.0002)
            connected = await out.connect(allowed(f"{NAME}:{stuck.port}"))
            outcomes.add(connected.reason if isinstance(connected, Deny) else None)
            if not isinstance(connected, Deny):
                connected[0].close()
        assert outcomes == {Reason.UPSTREAM_TIMEOUT, None}
        good.stop()
    assert descriptors() <= before
