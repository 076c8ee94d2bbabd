"""Cases C02-C11: what a CONNECT target may look like, and that one spelling is what matters.

A listed name passes the list and then has no address here (502), so no test needs the network; the
name server counts what was asked. Ports, lengths and what is no HTTP: test_case_targets_limits.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.case_parts import (
    DENIED,
    MALFORMED,
    NO_SUCH_NAME,
    NOT_LISTED,
    all_are,
    connect_head,
    refusals,
)
from tests.end_to_end.malformed_targets import MALFORMED_TARGETS
from tests.support.byte_stream import read_exactly
from tests.support.dns_stub import DnsStub
from tests.support.origins import EchoOrigin
from tests.support.program import run_cli
from tests.support.service import TOKEN, Service

LISTED = (
    "ok.example",
    "*.wild.example",
    "**.deep.example",
    "xn--bcher-kva.example",
    "under_score.example",
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
def origin_v6() -> Iterator[EchoOrigin]:
    with EchoOrigin(bind="::1") as echo:
        yield echo


@pytest.fixture(scope="module")
def running(names: DnsStub, origin: EchoOrigin, origin_v6: EchoOrigin) -> Iterator[Service]:
    allow = [word for entry in LISTED for word in ("--allow", entry)]
    deny = ("--deny", "no.wild.example", "--deny", "[::1]:9", "--deny", "203.0.113.9")
    literals = ("--allow", f"[0:0::1]:{origin_v6.port}", "--allow", f"127.0.0.1:{origin.port}")
    args = (*allow, *deny, *literals, "--allow", "[::1]:9", "--allow", "203.0.113.9")
    with Service(*args, "--resolver", names.address, token=TOKEN) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Iterator[Service]:
    yield running
    running.close_sockets()


@pytest.mark.parametrize("targets", MALFORMED_TARGETS.values(), ids=MALFORMED_TARGETS.keys())
def test_a_malformed_target_is_400_before_any_list_and_any_lookup(
    service: Service, names: DnsStub, targets: tuple[bytes, ...]
) -> None:
    before = names.total_queries
    assert refusals(service, targets) == all_are(MALFORMED, targets)
    assert names.total_queries == before


def test_the_list_matches_whole_labels_and_nothing_else_is_looked_up(
    service: Service, names: DnsStub
) -> None:
    passing = {
        "ok.example:443": "ok.example",
        "ok.example:80": "ok.example",
        "OK.EXAMPLE:443": "ok.example",
        "Ok.ExamplE.:443": "ok.example",
        "a.wild.example:443": "a.wild.example",
        "a.b.wild.example:443": "a.b.wild.example",
        "A.B.Wild.Example.:443": "a.b.wild.example",
        "deep.example:443": "deep.example",
        "a.b.c.deep.example:80": "a.b.c.deep.example",
        "XN--BCHER-KVA.EXAMPLE:443": "xn--bcher-kva.example",
        "under_score.example:443": "under_score.example",
    }
    refused = (
        "evil.test:443",
        "a.ok.example:443",
        "notok.example:443",
        "ok.example.evil.test:443",
        "ok.exampl:443",
        "ok.examplee:443",
        "ok-example:443",
        "okxexample:443",
        "example:443",
        "wild.example:443",
        "xwild.example:443",
        "a.xwild.example:443",
        "a.wild.example.evil.test:443",
        "wild.example.:443",
        "xdeep.example:443",
        "xn--bcher-kva.example.evil.test:443",
        "127.0.0.1:443",
        "[::1]:443",
        "[::ffff:127.0.0.1]:443",
        "[fe80::1]:443",
        "169.254.1.1:443",
    )
    assert refusals(service, passing) == all_are(NO_SUCH_NAME, passing)
    assert refusals(service, refused) == all_are(NOT_LISTED, refused)
    assert {query.name for query in names.log} <= set(passing.values())
    assert {name for name in passing.values() if names.queries(name)} == set(passing.values())


def test_a_deny_entry_holds_in_every_spelling(service: Service, names: DnsStub) -> None:
    denied = (
        "no.wild.example:443",
        "NO.WILD.EXAMPLE:443",
        "no.wild.example.:80",
        "no.wild.example:8443",
        "[::1]:9",
        "[0:0:0:0:0:0:0:1]:9",
        "::1:9",
        "[::0.0.0.1]:9",
        "203.0.113.9:443",
        "[::ffff:203.0.113.9]:443",
        "[::ffff:cb00:7109]:443",
        "[64:ff9b::203.0.113.9]:443",
    )
    assert refusals(service, denied) == all_are(DENIED, denied)
    assert names.queries("no.wild.example") == 0


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("EVIL.TEST.:443", "evil.test:443"),
        ("Evil.Test:8443", "evil.test:8443"),
        ("[0:0::2]:443", "[::2]:443"),
        ("2001:DB8::1:443", "[2001:db8::1]:443"),
        ("[::ffff:192.0.2.7]:443", "192.0.2.7:443"),
    ],
)
def test_a_refusal_names_the_canonical_target(service: Service, sent: str, shown: str) -> None:
    answer = service.connect(sent)
    assert answer.status_line == f"HTTP/1.1 403 Forbidden; egress denied for {shown}"
    assert answer.error == "blocked-by-allowlist"
    host, _, port = shown.rpartition(":")
    assert (answer.json()["host"], answer.json()["port"]) == (host, int(port))


def test_a_grant_made_with_a_trailing_dot_is_the_same_grant(service: Service, names: DnsStub) -> None:
    assert service.control("POST", "/allow", {"host": "New.Example."}).json() == {
        "allowed": "new.example",
        "ports": "80,443",
    }
    passing = ("new.example:443", "NEW.example.:80")
    assert refusals(service, passing) == all_are(NO_SUCH_NAME, passing)
    assert refusals(service, ("new.example..:443",)) == {"new.example..:443": MALFORMED}
    assert {query.name for query in names.log if "new" in query.name} == {"new.example"}


def test_an_ipv6_literal_works_in_every_spelling(service: Service, origin_v6: EchoOrigin) -> None:
    for host in ("[::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "::1", "0:0:0:0:0:0:0:1", "[::0.0.0.1]"):
        tunnel = service.tunnel(f"{host}:{origin_v6.port}", extra=b"HELLO")
        assert read_exactly(tunnel, 5) == b"HELLO"


def test_an_ipv4_literal_is_the_same_when_mapped(service: Service, origin: EchoOrigin) -> None:
    for host in ("127.0.0.1", "[::ffff:127.0.0.1]", "[::FFFF:7F00:1]", "::ffff:127.0.0.1"):
        tunnel = service.tunnel(f"{host}:{origin.port}", extra=b"HELLO")
        assert read_exactly(tunnel, 5) == b"HELLO"


def test_headers_of_a_connect_do_not_matter(service: Service) -> None:
    wrong = connect_head("evil.test:443").replace(b"Host: x", b"Host: ok.example:443")
    assert service.raw(wrong).startswith(b"HTTP/1.1 403 ")
    right = connect_head("ok.example:443").replace(
        b"Host: x", b"Host: evil.test\r\nX-Forwarded-Host: evil.test"
    )
    assert service.raw(right).startswith(b"HTTP/1.1 502 ")
    twice = connect_head("ok.example:443").replace(b"Host: x", b"Host: ok.example\r\nHost: ok.example")
    assert service.raw(twice).startswith(b"HTTP/1.1 400 ")


def test_entries_are_read_by_the_same_grammar(service: Service) -> None:
    bad = (
        "[fe80::1%lo]:443",
        "[::1%25.ok.example]:443",
        "[ok.example]",
        "::1",
        "bücher.example",
        "ok.example..",
        "user@ok.example",
        "https://ok.example",
        "ok.example/x",
        "127.1",
        "0x7f.1",
        "*",
        "*.com",
        "ok.*.example",
        "ok.example:99999",
        "ok.example:0443",
        "*.127.0.0.1",
        "",
    )
    granted = {entry: service.control("POST", "/allow", {"host": entry}).status for entry in bad}
    assert granted == dict.fromkeys(bad, 400)
    for entry in bad[:2]:  # a process each
        done = run_cli("check", "x.example", f"--allow={entry}")
        assert (done.returncode, done.stdout) == (2, ""), entry
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    assert "xn--bcher-kva.example" in run_cli("check", "x.example", "--allow=bücher.example").stderr
