"""Names that the machine's search list completes: which are tried, in which order, and how they are judged.

A real name server and real sockets. See egress_proxy/proxy/outbound.py and resolver.py.
"""

import contextlib
import time
from collections.abc import AsyncIterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow, Deny, OptIn, Reason
from egress_proxy.core.host import Name, parse_authority
from egress_proxy.core.policy import rule_index
from egress_proxy.core.rules import Rule
from egress_proxy.proxy import resolver
from egress_proxy.proxy.admission import allowed_event
from egress_proxy.proxy.hosts_file import HostsFile
from egress_proxy.proxy.name_cache import NameCache
from egress_proxy.proxy.outbound import Outbound
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.resolver import DnsLookup, NameServer
from tests.conftest import Start
from tests.egress_proxy.core.entries import deny_entry
from tests.support.dns_stub import DnsStub
from tests.support.origins import EchoOrigin

DOMAINS = ("ns.svc.test", "svc.test", "google.internal")
TIMEOUT_S = 5.0


def completed(name: Name) -> tuple[Name, ...]:
    """As `search ns.svc.test svc.test google.internal` and `ndots:2` say it."""
    below = tuple(Name(f"{name}.{domain}") for domain in DOMAINS)
    return (name, *below) if name.text.count(".") >= 2 else (*below, name)


@contextlib.asynccontextmanager
async def road(
    dns: DnsStub, *denied: Rule, hosts: Path = Path("/nowhere/hosts"), timeout_s: float = TIMEOUT_S
) -> AsyncIterator[Outbound]:
    lookup = DnsLookup(NameServer(IPv4Address("127.0.0.1"), dns.port))
    async with NameCache(lookup, HostsFile(hosts), time.monotonic, completed) as names:
        yield Outbound(
            names.resolve,
            lambda: (),
            timeout_s,
            names.ready,
            lambda: rule_index(denied),
            completions=names.completions,
        )


def allowed(authority: str, opt_in: OptIn = OptIn.INWARD) -> Allow:
    return Allow(parse_authority(authority), "the entry", opt_in)


async def asked_for(out: Outbound, allow: Allow) -> str:
    """The whole name under which the connection was made."""
    connected = await out.connect(allow)
    assert not isinstance(connected, Deny), connected
    sock, _, told = connected
    sock.close()
    return str(told.completed or told.target.host)


@pytest.mark.parametrize("whole", ["web.ns.svc.test", "web.svc.test", "web"])
async def test_the_first_completion_that_exists_is_dialled(dns: DnsStub, start: Start, whole: str) -> None:
    origin = start(EchoOrigin())
    dns.add(whole, "127.0.0.1")
    async with road(dns) as out:
        assert await asked_for(out, allowed(f"web:{origin.port}")) == whole


async def test_a_name_with_enough_dots_is_asked_for_as_it_is_first(dns: DnsStub, start: Start) -> None:
    origin = start(EchoOrigin())
    dns.add("a.b.c", "127.0.0.1")
    async with road(dns) as out:
        assert await asked_for(out, allowed(f"a.b.c:{origin.port}")) == "a.b.c"
        assert dns.queries("a.b.c.ns.svc.test") == 0
    dns.add("x.y.z.svc.test", "127.0.0.1")
    async with road(dns) as out:
        assert await asked_for(out, allowed(f"x.y.z:{origin.port}")) == "x.y.z.svc.test"


async def test_a_public_name_of_several_labels_is_whole(dns: DnsStub) -> None:
    dns.add("ok.example.ns.svc.test", "127.0.0.1")
    async with road(dns) as out:
        deny = await out.connect(allowed("ok.example:443", OptIn.NONE))
        assert isinstance(deny, Deny)
        assert deny.reason is Reason.NO_SUCH_NAME
    assert dns.queries("ok.example.ns.svc.test") == 0


async def test_a_single_label_is_completed_and_still_opts_in_to_nothing(dns: DnsStub) -> None:
    dns.add("web.ns.svc.test", "127.0.0.1")
    async with road(dns) as out:
        deny = await out.connect(allowed("web:443", OptIn.NONE))
        assert isinstance(deny, Deny)
        assert deny.reason is Reason.ADDRESS_NOT_PUBLIC


async def test_what_the_hosts_file_knows_is_complete(dns: DnsStub, start: Start, tmp_path: Path) -> None:
    origin = start(EchoOrigin())
    (tmp_path / "hosts").write_text("127.0.0.1 web\n")
    dns.add("web.ns.svc.test", "127.0.0.9")
    async with road(dns, hosts=tmp_path / "hosts") as out:
        assert await asked_for(out, allowed(f"web:{origin.port}")) == "web"
        assert await asked_for(out, allowed(f"localhost:{origin.port}")) == "localhost"
    assert dns.total_queries == 0


async def test_a_completion_that_is_a_metadata_name_is_refused(dns: DnsStub) -> None:
    dns.add("metadata.google.internal", "127.0.0.1")
    async with road(dns) as out:
        deny = await out.connect(allowed("metadata:80"))
        assert isinstance(deny, Deny)
        assert (deny.reason, deny.detail) == (
            Reason.METADATA,
            "the search list makes it metadata.google.internal",
        )


async def test_a_denied_completion_is_refused_with_the_entry_named(dns: DnsStub, start: Start) -> None:
    origin = start(EchoOrigin())
    dns.add("web.svc.test", "127.0.0.1")
    for entry in ("web.svc.test", "*.svc.test"):
        async with road(dns, deny_entry(entry)) as out:
            deny = await out.connect(allowed(f"web:{origin.port}"))
            assert isinstance(deny, Deny)
            assert (deny.reason, deny.rule) == (Reason.DENIED_BY_RULE, f"{entry}:*")
    async with road(dns, deny_entry("other.svc.test"), deny_entry("web.svc.test:1")) as out:
        assert await asked_for(out, allowed(f"web:{origin.port}")) == "web.svc.test"


async def test_a_server_that_is_silent_about_one_completion_does_not_choose_the_next(dns: DnsStub) -> None:
    dns.black_hole("web.ns.svc.test")
    dns.add("web.svc.test", "127.0.0.1")
    async with road(dns, timeout_s=0.2) as out:
        deny = await out.connect(allowed("web:443"))
        assert isinstance(deny, Deny)
        assert deny.reason is Reason.UPSTREAM_TIMEOUT
    assert dns.queries("web.svc.test") == 0


async def test_nothing_is_ready_that_a_completion_could_stand_before(dns: DnsStub, start: Start) -> None:
    origin = start(EchoOrigin())
    dns.add("web", "127.0.0.1")
    dns.add("a.b.c", "127.0.0.1")
    async with road(dns) as out:
        for name in ("web", "a.b.c"):
            await asked_for(out, allowed(f"{name}:{origin.port}"))
        assert out.ready(allowed(f"web:{origin.port}")) is None
        assert out.ready(allowed(f"a.b.c:{origin.port}")) == (IPv4Address("127.0.0.1"),)


def test_the_line_of_an_allowed_request_names_the_completion() -> None:
    allow = Allow(parse_authority("web:80"), "web", OptIn.INWARD, completed=Name("web.svc.test"))
    access = Access(Client(), allow.target, Door.TUNNEL)
    event = allowed_event("r1", Peer("127.0.0.1:1"), access, allow, "127.0.0.1")
    assert event.detail == "the search list makes it web.svc.test"


@pytest.mark.parametrize(
    ("text", "name", "tried"),
    [
        ("search a.test b.test\n", "web", ["web.a.test", "web.b.test", "web"]),
        ("search a.test\n", "x.web", ["x.web", "x.web.a.test"]),
        ("search a.test\noptions ndots:5\n", "x.web", ["x.web.a.test", "x.web"]),
        ("search a.test\noptions ndots:0\n", "web", ["web", "web.a.test"]),
        ("search a.test\noptions timeout:1 ndots:x\n", "web", ["web.a.test", "web"]),
        ("search old.test\nsearch a.test A.TEST.\n", "web", ["web.a.test", "web"]),
        ("domain a.test\n", "web", ["web.a.test", "web"]),
        ("search .\n", "web", ["web"]),
        ("search a..test\n", "web", ["web"]),
        (f"search {'a' * 64}.test\n", "web", ["web"]),
        (f"search {'.'.join(['a' * 60] * 4)} b.test\n", "web.abcdefghijkl", None),
    ],
)
def test_resolv_conf_says_what_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, tried: list[str] | None
) -> None:
    (tmp_path / "resolv.conf").write_text(f"nameserver 192.0.2.1\ndomain .\n{text}")
    monkeypatch.setattr(resolver, "_RESOLV_CONF", str(tmp_path / "resolv.conf"))
    names = [str(one) for one in DnsLookup(None).completions(Name(name))]
    assert names == (tried or [name, f"{name}.b.test"])
    own_server = DnsLookup(NameServer(IPv4Address("192.0.2.1")))
    assert own_server.completions(Name(name)) == (Name(name),)
