"""The credential: where it comes from, and that neither an answer nor anything we say gives it away.

Through a running data port before a scripted provider, by both doors where they could differ. The guard
itself is in test_reflection.py, its forms in vault/test_injection.py.
"""

from __future__ import annotations

import base64
import gc
import gzip
import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from egress_proxy.core.decision import Reason
from egress_proxy.core.event_record import record_of
from egress_proxy.core.events import Decided, EndCause, Ended
from egress_proxy.core.policy import Policy
from egress_proxy.proxy.order import ForwardLimits
from egress_proxy.proxy.secret_search import Forms
from egress_proxy.vault.injection import Credential, HeldCredential, Rewriter
from egress_proxy.vault.sources import open_source, parse_source
from tests.conftest import Start
from tests.egress_proxy.proxy.brokers import (
    API_HOST,
    DOORS,
    SECRET,
    broker,
    call,
    ended,
    rule,
    secured_broker,
)
from tests.egress_proxy.proxy.held_upstream import HeldUpstream
from tests.support.answers import (
    abort,
    bodiless,
    chunk,
    close,
    echo_header,
    echo_split,
    encoded,
    fixed,
    gzip_members,
    gzipped,
    head,
    interim,
    nonsense,
    play,
    read_body,
    reply_with,
    torn_chunk,
)
from tests.support.byte_stream import End, read_until_end
from tests.support.certificates import CertificateAuthority, server_context
from tests.support.data_port import DataPort
from tests.support.dns_stub import DnsStub
from tests.support.http import Response, read_chunk, read_head, read_response, request_bytes
from tests.support.live_stream import LiveStream
from tests.support.origins import pattern
from tests.support.provider import Provider

CANARY = SECRET.encode()
VALUE = b"Bearer " + CANARY
STARS = b"*" * len(VALUE)
OK = fixed(b"ok")

by_both_doors = pytest.mark.parametrize("door", DOORS)


@pytest.fixture
def provider(start: Start) -> Provider:
    made = start(Provider())
    made.otherwise(OK)
    return made


@pytest.fixture
def port(start: Start, provider: Provider) -> DataPort:
    return start(broker(provider))


def error(response: Response) -> tuple[int, str | None]:
    return response.status, response.value("X-Proxy-Error")


# The credential itself.


def file_credential(path: Path) -> Credential:
    return Credential(b"Authorization", "Bearer {secret}", open_source(parse_source(f"file:{path}"), {}))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text("sk-first\n")
    return path


def test_a_secret_that_changed_in_its_file_is_used_and_guarded_from_then_on(
    start: Start, provider: Provider, key_file: Path
) -> None:
    provider.otherwise(reply_with(lambda request: fixed(b"sk-first sk-second")))
    port = start(broker(provider, credentials={"provider": file_credential(key_file)}))
    caller = call(port)
    assert caller.ask("GET").body == b"******** sk-second"
    key_file.write_text("sk-second\n")
    assert caller.ask("GET").body == b"sk-first *********"
    values = [request.value("Authorization") for request in provider.requests]
    assert values == ["Bearer sk-first", "Bearer sk-second"]


def test_a_secret_that_cannot_be_read_sends_nothing_out(
    start: Start, provider: Provider, key_file: Path
) -> None:
    port = start(broker(provider, credentials={"provider": file_credential(key_file)}))
    os.unlink(key_file)
    refused = call(port).ask("GET")
    assert error(refused) == (502, "secret-unavailable")
    assert ended(port).reason is Reason.SECRET_UNAVAILABLE
    assert provider.connections_accepted == 0


@pytest.fixture
def upstream(start: Start, ca: CertificateAuthority) -> HeldUpstream:
    made = start(HeldUpstream(server_context(ca.leaf(API_HOST))))
    made.otherwise(reply_with(lambda request: fixed(b"sk-first sk-second")))
    return made


@pytest.fixture
def waiting(
    start: Start, upstream: HeldUpstream, ca: CertificateAuthority, dns: DnsStub, key_file: Path
) -> DataPort:
    """A port to that upstream, with a secret in a file."""
    made = secured_broker(upstream.port, ca, dns)
    made.setup.credentials = {"provider": file_credential(key_file)}
    return start(made)


def test_a_secret_that_changes_while_the_upstream_is_dialled_is_sent_and_guarded_as_it_is_then(
    waiting: DataPort, upstream: HeldUpstream, key_file: Path
) -> None:
    caller = call(waiting, host=API_HOST)
    caller.send("GET")
    upstream.wait_for_connections(1)
    key_file.write_text("sk-second\n")
    upstream.gate.set()
    assert read_response(caller.sock).body == b"sk-first *********"
    assert upstream.only_request.value("Authorization") == "Bearer sk-second"
    assert b"sk-first" not in upstream.only_request.raw_head


def test_a_secret_that_goes_while_the_upstream_is_dialled_sends_nothing_out(
    waiting: DataPort, upstream: HeldUpstream, key_file: Path
) -> None:
    caller = call(waiting, host=API_HOST)
    caller.send("GET")
    upstream.wait_for_connections(1)
    os.unlink(key_file)
    upstream.gate.set()
    refused = read_response(caller.sock)
    assert error(refused) == (502, "secret-unavailable")
    assert ended(waiting).reason is Reason.SECRET_UNAVAILABLE
    assert len(waiting.log.of(Decided)) == 1
    upstream.wait_for_closed()
    assert upstream.octets_received == 0


def made_of_secrets() -> list[object]:
    """What is in memory now that a secret in its clear forms is part of."""
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, HeldCredential | Rewriter | Forms)]


@pytest.mark.parametrize("door", DOORS)
def test_what_was_made_of_a_secret_is_forgotten_when_the_settings_are_new(
    port: DataPort, provider: Provider, door: str
) -> None:
    before = made_of_secrets()
    caller = call(port, door)
    for _ in range(2):  # in a task, and without one
        assert caller.ask("GET").status == 200
    port.log.wait_for(Ended, 2)
    kept = [one for one in made_of_secrets() if all(one is not other for other in before)]
    assert {type(one) for one in kept} == {HeldCredential, Rewriter, Forms}

    def reload() -> None:
        port.parts.in_force.policy = Policy()
        port.parts.in_force.credentials = {}
        port.parts.forwarder.forget()

    port.call(reload)
    del kept
    assert [one for one in made_of_secrets() if all(one is not other for other in before)] == []


def test_an_answer_that_is_under_way_when_the_settings_are_new_is_guarded_on(
    port: DataPort, provider: Provider
) -> None:
    stream = LiveStream()
    provider.otherwise(stream)
    caller = call(port)
    caller.send("GET")
    read_head(caller.sock)

    def reload() -> None:
        port.parts.in_force.policy = Policy()
        port.parts.in_force.credentials = {}
        port.parts.forwarder.forget()

    port.call(reload)
    stream.push(b"<" + VALUE + b">")
    assert read_chunk(caller.sock) == b"<" + STARS + b">"


def test_a_credential_that_a_reload_wrote_differently_is_guarded_as_it_is_sent(
    start: Start, provider: Provider
) -> None:
    source = open_source(parse_source("env:KEY"), {"KEY": SECRET})
    port = start(broker(provider, credentials={"provider": Credential(b"X-Key", "first:{secret}", source)}))
    provider.otherwise(
        reply_with(lambda request: fixed(base64.b64encode((request.value("X-Key") or "").encode())))
    )
    caller = call(port)
    assert caller.ask("GET").body.startswith(b"*" * 16)
    port.parts.in_force.credentials = {"provider": Credential(b"X-Key", "another:{secret}", source)}
    assert caller.ask("GET").body.startswith(b"*" * 16)  # the whole value, not the secret in it alone


def test_a_rule_that_a_reload_changed_is_rewritten_as_it_is_now(start: Start, provider: Provider) -> None:
    route = rule(provider.port)
    port = start(broker(provider, route=route))
    caller = call(port)
    caller.ask("GET", headers=[("X-HTTP-Method-Override", "DELETE")])
    port.setup.routes = [replace(route, methods=frozenset({"GET"}))]
    port.parts.in_force.policy = port.setup.policy()
    caller.ask("GET", headers=[("X-HTTP-Method-Override", "DELETE")])
    assert [request.value("X-HTTP-Method-Override") for request in provider.requests] == ["DELETE", None]


CANARIES = [
    CANARY,
    base64.b64encode(CANARY).rstrip(b"=")[:-1],
    base64.b64encode(VALUE).rstrip(b"=")[:-1],
    CANARY.hex().encode(),
    quote(SECRET, safe="").encode(),
    quote(f"Bearer {SECRET}", safe="").encode(),
]

FAILURES: dict[str, bytes | Callable[..., None]] = {
    "reset": play(abort),
    "close": play(close),
    "nonsense": nonsense(),
    "echo in the status line": reply_with(lambda r: b"HTTP/1.1 " + r.raw_head[-60:]),
    "echo in a header line": reply_with(lambda r: b"HTTP/1.1 200 OK\r\n" + CANARY + b"\r\n\r\n"),
    "echo in a bad length": reply_with(lambda r: head(200, [("Content-Length", SECRET)])),
    "echo in a bad coding": echo_header("Authorization", "Content-Encoding"),
    "echo in a bad transfer coding": reply_with(lambda r: head(200, [("Transfer-Encoding", SECRET)])),
    "echo in a bad chunk": play(head(200, [("Transfer-Encoding", "chunked")]) + CANARY + b"\r\n"),
    "echo in a torn body": torn_chunk(VALUE, torn=VALUE, declared=1000),
    "echo in gzip": reply_with(lambda r: gzipped(pattern(100_000) + r.raw_head)),
    "echo in a name": fixed(b"", headers=[(SECRET, "x")]),
    "echo in a phrase": fixed(b"", reason=f"OK {SECRET}"),
    "echo in base64": reply_with(lambda r: fixed(base64.b64encode(VALUE))),
    "echo in percents": reply_with(lambda r: fixed(quote(VALUE, safe="").encode())),
    "a late first byte": play(read_body, threading.Event()),
}


@by_both_doors
@pytest.mark.parametrize("kind", FAILURES)
def test_the_credential_is_in_nothing_that_a_client_or_a_log_is_told(
    start: Start, provider: Provider, door: str, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    provider.otherwise(FAILURES[kind])
    limits = ForwardLimits(first_byte_s=0.3, idle_s=5)
    port = start(broker(provider, forwarding=limits))
    caller = call(port, door)
    caller.send("POST", headers=[("Connection", "close")], body=b"x")
    received, end = read_until_end(caller.sock)
    assert end is not End.OPEN
    over = ended(port)
    port.stop()
    told = [received, str(port.log.all).encode(), json.dumps(record_of(over)).encode()]
    told += [text.encode() for text in capfd.readouterr()]
    for canary in CANARIES:
        assert not any(canary in text for text in told), canary
    assert CANARY in provider.only_request.raw_head  # it was sent, after all


# The credential in answers.


@by_both_doors
@pytest.mark.parametrize("into", ["X-Echo", "Set-Cookie", "Location"])
def test_the_credential_in_a_header_of_the_answer_is_starred(
    port: DataPort, provider: Provider, door: str, into: str
) -> None:
    provider.otherwise(echo_header("Authorization", into))
    response = call(port, door).ask("GET")
    assert response.value(into) == STARS.decode()
    assert CANARY not in response.head.raw


def test_the_credential_in_a_name_a_phrase_an_interim_head_or_a_trailer_is_starred(
    port: DataPort, provider: Provider
) -> None:
    provider.otherwise(
        play(
            interim(103, [("X-Early", SECRET)]),
            head(200, [("Transfer-Encoding", "chunked"), (SECRET, "x")], f"OK {SECRET}")
            + chunk(b"hi")
            + f"0\r\nX-Late: {SECRET}\r\n{SECRET}: y\r\n\r\n".encode(),
        )
    )
    answer, end = port.converse(request_bytes("GET", "http://127.0.0.1/", [("Connection", "close")]))
    assert end is End.EOF
    assert CANARY not in answer
    stars = b"*" * len(CANARY)
    for expected in (
        b"X-Early: " + stars,
        b"200 OK " + stars,
        stars + b": x",
        b"X-Late: " + stars,
        stars + b": y",
    ):
        assert expected in answer


def test_a_length_is_no_place_for_stars(start: Start, provider: Provider) -> None:
    provider.otherwise(play(head(200, [("Content-Length", "20481024"), ("X", "20481024")])))
    port = start(broker(provider, secret="20481024"))
    response = call(port).ask("HEAD")
    assert (response.value("X"), response.value("Content-Length")) == ("*" * 8, "20481024")


@by_both_doors
def test_the_credential_in_a_body_is_starred_at_equal_length(
    port: DataPort, provider: Provider, door: str
) -> None:
    provider.otherwise(reply_with(lambda request: fixed(request.raw_head)))
    response = call(port, door).ask("GET")
    assert response.value("Content-Length") == str(len(provider.only_request.raw_head))
    assert response.body == provider.only_request.raw_head.replace(VALUE, STARS)
    assert STARS in response.body


def test_the_credential_that_comes_in_two_parts_is_starred(port: DataPort, provider: Provider) -> None:
    gate = threading.Event()
    provider.otherwise(echo_split(CANARY, gate))
    caller = call(port)
    caller.send("GET")
    read_head(caller.sock)
    first = read_chunk(caller.sock)
    assert b"Bearer" not in first
    gate.set()
    rest = b"".join(iter(lambda: read_chunk(caller.sock), b""))
    assert first + rest == provider.only_request.raw_head.replace(VALUE, STARS)


@pytest.mark.parametrize("status", [200, 500])
def test_a_clean_gzip_body_passes_byte_for_byte(port: DataPort, provider: Provider, status: int) -> None:
    octets = gzip_members(pattern(300_000), 3)
    provider.otherwise(encoded("gzip", octets, status))
    response = call(port).ask("GET", headers=[("Accept-Encoding", "gzip")])
    assert (response.status, response.value("Content-Encoding")) == (status, "gzip")
    assert response.value("Content-Length") == str(len(octets))
    assert response.body == octets
    assert gzip.decompress(response.body) == pattern(300_000)


@by_both_doors
def test_a_gzip_body_with_the_credential_is_aborted(port: DataPort, provider: Provider, door: str) -> None:
    provider.otherwise(reply_with(lambda request: gzipped(pattern(100_000) + request.raw_head)))
    caller = call(port, door)
    caller.send("GET")
    received, end = read_until_end(caller.sock)
    assert end is End.RESET
    assert CANARY not in received
    assert ended(port).cause is EndCause.REFLECTION
    assert provider.wait_for_closed() is not None


CODINGS = ["br", "zstd", "deflate", "gzip, gzip", "x"]


@by_both_doors
@pytest.mark.parametrize("coding", CODINGS)
def test_a_coding_that_cannot_be_looked_into_is_a_502(
    port: DataPort, provider: Provider, door: str, coding: str
) -> None:
    provider.otherwise(encoded(coding, b"opaque"))
    refused = call(port, door).ask("GET")
    assert (refused.status, refused.value("X-Proxy-Error")) == (502, "body-not-inspectable")
    assert ended(port).reason is Reason.BODY_NOT_INSPECTABLE
    assert coding in ended(port).detail


@pytest.mark.parametrize("coding", CODINGS)
def test_a_rule_may_let_opaque_bodies_pass(start: Start, provider: Provider, coding: str) -> None:
    provider.otherwise(encoded(coding, b"opaque"))
    port = start(broker(provider, route=rule(provider.port, opaque_bodies=True)))
    response = call(port).ask("GET")
    assert (response.body, response.value("Content-Encoding")) == (b"opaque", coding)


def test_a_coding_of_an_answer_without_a_body_does_not_matter(port: DataPort, provider: Provider) -> None:
    provider.otherwise(bodiless(304, [("Content-Encoding", "br")]))
    assert call(port).ask("GET").status == 304


def test_a_refusal_does_not_quote_the_credential_that_an_upstream_sent_back(
    port: DataPort, provider: Provider
) -> None:
    provider.otherwise(echo_header("Authorization", "Content-Encoding"))
    refused = call(port).ask("GET")
    assert refused.status == 502
    assert CANARY not in refused.head.raw + refused.body
    assert SECRET not in str(port.log.all)
    assert ended(port).reason is Reason.BODY_NOT_INSPECTABLE


def test_the_code_of_our_own_refusals_never_comes_from_an_upstream(
    port: DataPort, provider: Provider
) -> None:
    provider.otherwise(fixed(b"", 403, [("x-proxy-error", "blocked-by-allowlist")]))
    response = call(port).ask("GET")
    assert (response.status, response.value("X-Proxy-Error")) == (403, None)
    assert ended(port).status == 403
