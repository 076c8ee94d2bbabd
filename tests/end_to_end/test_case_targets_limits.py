"""Cases C12-C14: ports, lengths of names and heads, and what is no HTTP at all.

Next: test_case_targets.py (spellings), test_case_tunnels_limits.py (slow heads).
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator

import pytest

from tests.end_to_end.case_parts import (
    MALFORMED,
    NO_SUCH_NAME,
    NOT_LISTED,
    Refusal,
    all_are,
    connect_head,
    refusal,
    refusals,
    settled_log,
)
from tests.support.byte_stream import End, connect, read_until_end
from tests.support.deadline import eventually
from tests.support.dns_stub import DnsStub
from tests.support.origins import BannerOrigin
from tests.support.service import Service

TOO_LARGE = Refusal(431, "head-too-large")
HEAD_BYTES = 16_384


@pytest.fixture(scope="module")
def names() -> Iterator[DnsStub]:
    with DnsStub() as stub:
        stub.add("ssh.example", "127.0.0.1")
        yield stub


@pytest.fixture(scope="module")
def ssh() -> Iterator[BannerOrigin]:
    with BannerOrigin() as origin:
        yield origin


@pytest.fixture(scope="module")
def running(names: DnsStub, ssh: BannerOrigin) -> Iterator[Service]:
    allow = ("--allow", "ok.example", "--allow", "git.example:22", "--allow", "any.example:*")
    private = ("--allow-private", f"ssh.example:{ssh.port}")
    with Service(*allow, *private, "--resolver", names.address) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Iterator[Service]:
    yield running
    running.close_sockets()


def test_an_entry_opens_its_own_ports_only(service: Service, ssh: BannerOrigin) -> None:
    passing = ("ok.example:443", "ok.example:80", "git.example:22", "any.example:1", "any.example:65535")
    assert refusals(service, passing) == all_are(NO_SUCH_NAME, passing)
    refused = (
        "ok.example:25",
        "ok.example:22",
        "ok.example:8080",
        "ok.example:4443",
        "ok.example:44",
        "git.example:443",
        "git.example:80",
        "git.example:2222",
        f"ssh.example:{ssh.port - 1}",
        "ssh.example:443",
    )
    assert refusals(service, refused) == all_are(NOT_LISTED, refused)
    tunnel = service.tunnel(f"ssh.example:{ssh.port}")
    assert tunnel.recv(100) == ssh.banner


def test_a_port_is_one_to_five_ascii_digits(service: Service) -> None:
    bad = (
        "ok.example:0",
        "ok.example:65536",
        "ok.example:99999",
        "ok.example:100000",
        "ok.example:0443",
        "ok.example:00443",
        "ok.example:+443",
        "ok.example:-443",
        "ok.example:443.0",
        "ok.example:0x1bb",
        "ok.example:4_43",
        "ok.example:443a",
        "ok.example:https",
        "ok.example:*",
        "ok.example:80,443",
        "ok.example:" + "4" * 5000,
        "ok.example:" + "0" * 5000 + "443",
        "ok.example:4294967739",
        "any.example:0",
        "any.example:65536",
    )
    assert refusals(service, bad) == all_are(MALFORMED, bad)


def test_a_name_has_253_characters_and_a_label_63(service: Service, names: DnsStub) -> None:
    longest = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert len(longest) == 253
    known = (f"{longest}:443", f"{longest}.:443", "a" * 63 + ".example:443")
    assert refusals(service, known) == all_are(NOT_LISTED, known)
    bad = (
        "a" * 300 + ".example:443",
        "a" * 64 + ".example:443",
        "ok." + "a" * 64 + ":443",
        f"{longest}b:443",
        f"b.{longest}:443",
        "a." * 127 + "b:443",
        "a." * 5000 + "b:443",
        "1." * 5000 + "1:443",
        "[" + "1:" * 5000 + ":1]:443",
    )
    assert refusals(service, bad) == all_are(MALFORMED, bad)
    assert names.total_queries == 0 or {q.name for q in names.log} <= {
        "ok.example",
        "git.example",
        "any.example",
        "ssh.example",
    }


def test_a_head_of_exactly_the_limit_is_read(service: Service) -> None:
    head = connect_head("evil.test:443")
    padded = head.replace(b"Host: x", b"Host: x\r\nX: " + b"a" * (HEAD_BYTES - len(head) - len("\r\nX: ")))
    assert len(padded) == HEAD_BYTES
    assert refusal(service, padded) == NOT_LISTED
    assert refusal(service, padded.replace(b"X: ", b"X: a")) == TOO_LARGE


TOO_LONG: dict[str, bytes] = {
    "no end": b"CONNECT ok.example:443 HTTP/1.1\r\nX: " + b"a" * 70_000,
    "many lines": b"CONNECT ok.example:443 HTTP/1.1\r\n" + b"X: a\r\n" * 5_000 + b"\r\n",
    "many lines and no end": b"CONNECT ok.example:443 HTTP/1.1\r\n" + b"X: a\r\n" * 5_000,
    "one long line": b"CONNECT ok.example:443 HTTP/1.1\r\nX: " + b"a" * 60_000 + b"\r\n\r\n",
    "a long name": b"CONNECT ok.example:443 HTTP/1.1\r\n" + b"X" * 60_000 + b": a\r\n\r\n",
    "a long target": b"CONNECT " + b"a" * 60_000 + b":443 HTTP/1.1\r\n\r\n",
    "a long method": b"C" * 60_000 + b" ok.example:443 HTTP/1.1\r\n\r\n",
    "a long path": b"GET http://ok.example/" + b"a" * 60_000 + b" HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("octets", TOO_LONG.values(), ids=TOO_LONG.keys())
def test_a_head_over_the_limit_is_431_and_one_line(service: Service, octets: bytes) -> None:
    before = len(settled_log(service))
    assert refusal(service, octets) == TOO_LARGE
    new = map(json.loads, settled_log(service)[before:])
    assert [(r["status"], r["verdict"]) for r in new] == [(431, "deny")]


def test_a_head_over_the_limit_is_refused_while_it_comes(service: Service) -> None:
    """The client still sends, and has the answer: nothing waits for the end of the head."""
    with connect(service.proxy_port) as sock:
        sock.sendall(b"CONNECT ok.example:443 HTTP/1.1\r\nX: " + b"a" * HEAD_BYTES)
        assert sock.recv(100).startswith(b"HTTP/1.1 431 ")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")
def test_long_heads_take_no_memory(service: Service) -> None:
    def flood() -> None:
        for _ in range(40):
            refusal(service, TOO_LONG["many lines"] * 10)

    flood()
    before = service.rss_bytes()
    flood()
    assert service.rss_bytes() - before < 4 * 1_048_576


NOT_HTTP_BINARY: dict[str, bytes] = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00",
    "TLS, its first byte": b"\x16",
    "SOCKS5": b"\x05\x01\x00",
    "SOCKS4": b"\x04\x01\x01\xbb\x7f\x00\x00\x01\x00",
    "zeros": b"\x00" * 8,
    "high bytes": b"\xff\xfe\xfd",
    "PROXY protocol 2": b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c",
    "UTF-16": "GET / HTTP/1.1".encode("utf-16-be"),
}
NOT_HTTP_TEXT: dict[str, bytes] = {
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2 by name": b"CONNECT ok.example:443 HTTP/2.0\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/1.2": b"CONNECT ok.example:443 HTTP/1.2\r\n\r\n",
    "HTTP/1.10": b"CONNECT ok.example:443 HTTP/1.10\r\n\r\n",
    "http in small letters": b"CONNECT ok.example:443 http/1.1\r\n\r\n",
    "SMTP": b"EHLO mail.example\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a word": b"hello\n",
    "PROXY protocol 1": b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
    "two blanks": b"CONNECT  ok.example:443 HTTP/1.1\r\n\r\n",
    "a blank behind": b"CONNECT ok.example:443 HTTP/1.1 \r\n\r\n",
    "a tab": b"CONNECT\tok.example:443\tHTTP/1.1\r\n\r\n",
    "bare line feeds": b"CONNECT ok.example:443 HTTP/1.1\n\n",
    "a colon before the method": b"A:B C HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("octets", NOT_HTTP_TEXT.values(), ids=NOT_HTTP_TEXT.keys())
def test_text_that_is_no_http_is_400_within_2_s(service: Service, octets: bytes) -> None:
    before, begun = len(settled_log(service)), time.monotonic()
    received, end = service.raw_end(octets)
    assert (received.startswith(b"HTTP/1.1 400 Bad Request\r\n"), end) == (True, End.EOF)
    assert time.monotonic() - begun < 2
    assert len(settled_log(service)) == before + 1


@pytest.mark.parametrize("octets", NOT_HTTP_BINARY.values(), ids=NOT_HTTP_BINARY.keys())
def test_other_protocols_are_closed_within_2_s_and_leave_one_line(service: Service, octets: bytes) -> None:
    before, begun = len(settled_log(service)), time.monotonic()
    received, end = service.raw_end(octets)
    assert received == b"" or received.startswith(b"HTTP/1.1 400 ")
    assert end is not End.OPEN
    assert time.monotonic() - begun < 2
    new = map(json.loads, settled_log(service)[before:])
    assert [(record["verdict"], record["reason"]) for record in new] in (
        [("deny", "not_http")],
        [("deny", "malformed")],
    )


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")
def test_connect_and_close_probes_are_harmless_and_leave_no_line(service: Service) -> None:
    lines, before = len(settled_log(service)), service.open_descriptors()
    for _ in range(200):
        service.open().close()
    assert len(settled_log(service)) == lines
    eventually(lambda: service.open_descriptors() <= before, what="the descriptors of the probes")


def test_what_comes_behind_a_refusal_is_taken_in_so_that_the_answer_arrives(service: Service) -> None:
    """A client that goes on sending must not lose the answer to a reset."""
    with connect(service.proxy_port) as sock:
        sock.sendall(connect_head("evil.test:443"))
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                sock.sendall(b"x" * 65_536)
        received, _ = read_until_end(sock)
        assert received.startswith(b"HTTP/1.1 403 Forbidden; egress denied for evil.test:443\r\n")
