"""Case C47: what an upstream echoes of the secret, and what the client gets to see of it.

The promise: raw, in base64 or URL-encoded it is overwritten with stars, byte for byte; in a gzip body,
which passes as it is, it cuts the answer off. Other answers: test_case_inject_answers.py.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import zlib
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.end_to_end.case_inject import SECRET, Injecting, open_injecting
from tests.support.answers import (
    chunked,
    echo,
    echo_gzip,
    echo_header,
    echo_split,
    fixed,
    gzipped,
    interim,
    play,
    read_body,
    redirect,
    reply_with,
)
from tests.support.certificates import CertificateAuthority
from tests.support.http import read_response, request_bytes
from tests.support.origins import pattern

VALUE = f"Bearer {SECRET}"


@pytest.fixture(scope="module")
def running(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injecting]:
    with open_injecting(ca, tmp_path_factory.mktemp("inject")) as injecting:
        yield injecting


@pytest.fixture
def inject(running: Injecting) -> Iterator[Injecting]:
    running.begin()
    yield running
    running.finish()


def masked(head: bytes) -> bytes:
    return head.replace(VALUE.encode(), b"*" * len(VALUE))


def test_an_echo_of_the_request_shows_stars(inject: Injecting) -> None:
    inject.provider.on("/echo", echo())
    answer = inject.get("/echo")
    assert answer.body == masked(inject.requests[0].raw_head)
    assert answer.value("Content-Length") == str(len(inject.requests[0].raw_head))


def test_an_echo_split_in_mid_secret_shows_stars(inject: Injecting) -> None:
    gate = threading.Event()
    inject.provider.on("/split", echo_split(SECRET.encode(), gate))
    sock = inject.service.open()
    sock.sendall(request_bytes("GET", "http://api.example/split"))
    inject.wait()
    gate.set()
    answer = read_response(sock)
    assert answer.body == masked(inject.requests[0].raw_head)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_an_echo_in_small_pieces_shows_stars(inject: Injecting, size: int) -> None:
    text = b"before " + VALUE.encode() + b" between " + SECRET.encode() + b" behind"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    inject.provider.on("/", chunked(*pieces))
    answer = inject.get()
    assert answer.body == masked(text).replace(SECRET.encode(), b"*" * len(SECRET))


def test_a_compressed_echo_is_cut_off(inject: Injecting) -> None:
    inject.provider.on("/gzip", echo_gzip())
    body = inject.cut_off(request_bytes("GET", "http://api.example/gzip", [("Accept-Encoding", "gzip")]))
    assert SECRET.encode() not in zlib.decompressobj(31).decompress(body)
    inject.provider.on("/late", gzipped(pattern(200_000) + SECRET.encode() + pattern(200_000), members=2))
    inject.cut_off(request_bytes("GET", "http://api.example/late"))


SMALL_ESCAPES = re.sub("%..", lambda found: found[0].lower(), quote(SECRET, safe=""))
ENCODED: dict[str, str] = {
    "the whole value": VALUE,
    "the secret alone": SECRET,
    "base64 of the secret": base64.b64encode(SECRET.encode()).decode(),
    "base64 of the value": base64.b64encode(VALUE.encode()).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(VALUE.encode()).decode(),
    "base64 within a longer text": base64.b64encode(f"user:{SECRET}".encode()).decode(),
    "percent": quote(SECRET, safe=""),
    "percent in small letters": SMALL_ESCAPES,
    "percent of the value": quote(VALUE, safe=""),
    "a query": quote(VALUE, safe="").replace("%20", "+"),
    "JSON": json.dumps({"k": SECRET}),
    "JSON with escaped slashes": json.dumps({"k": SECRET}).replace("/", "\\/"),
    "twice": f"{SECRET}{SECRET}",
}


def readable_in(text: str) -> bool:
    """Whether a reader of the text could still find the secret's core, in a form the docs promise."""
    core = SECRET[3:]
    forms = [core, quote(core, safe=""), SMALL_ESCAPES[3:], core.replace("/", "\\/")]
    # The whole groups of base64 that hold nothing but the secret, at each of the three alignments.
    for shift in range(3):
        forms.append(base64.b64encode(b"\0" * shift + SECRET.encode())[4:-6].decode())
    return any(form in text for form in forms)


@pytest.mark.parametrize("text", ENCODED.values(), ids=ENCODED.keys())
def test_encoded_copies_are_overwritten(inject: Injecting, text: str) -> None:
    assert readable_in(text)
    for status in (200, 401, 500):
        inject.provider.on("/", fixed(b"[" + text.encode() + b"]", status))
        answer = inject.get()
        assert (answer.status, len(answer.body)) == (status, len(text) + 2)
        assert not readable_in(answer.body.decode())


def test_heads_reasons_and_trailers_are_overwritten(inject: Injecting) -> None:
    inject.provider.on("/header", echo_header("Authorization", "X-Echo"))
    assert inject.get("/header").value("X-Echo") == "*" * len(VALUE)
    inject.provider.on("/location", redirect(f"https://evil.test/?token={quote(SECRET, safe='')}"))
    assert not readable_in(inject.get("/location").value("Location") or "")
    inject.provider.on("/cookie", fixed(b"", headers=[("Set-Cookie", f"k={SECRET}")]))
    assert inject.get("/cookie").value("Set-Cookie") == "k=" + "*" * len(SECRET)
    inject.provider.on("/reason", fixed(b"", 400, reason=f"no {SECRET}"))
    assert inject.get("/reason").reason == "no " + "*" * len(SECRET)
    inject.provider.on("/name", fixed(b"", headers=[(SECRET.split("/")[0], SECRET)]))
    assert SECRET.encode() not in inject.get("/name").head.raw
    inject.provider.on("/trailer", chunked(b"x", trailers=[("X-Echo", VALUE)]))
    received, _ = inject.service.raw_end(
        request_bytes("GET", "http://api.example/trailer", [("Connection", "close")])
    )
    assert SECRET.encode() not in received
    inject.provider.on("/hints", play(interim(103, [("Link", VALUE)]), read_body, fixed(b"ok")))
    assert SECRET.encode() not in b"".join(head.raw for head in inject.get("/hints").interim)


def test_a_secret_in_the_request_body_is_the_clients_own(inject: Injecting) -> None:
    inject.provider.on("/", reply_with(lambda request: fixed(request.body)))
    answer = inject.ask(request_bytes("POST", "http://api.example/", body=b"nothing of ours"))
    assert answer.body == b"nothing of ours"


def test_a_prefix_of_the_secret_passes(inject: Injecting) -> None:
    text = f"{SECRET[:-1]} Bearer sk-other {SECRET[:5]}".encode()
    inject.provider.on("/", fixed(text))
    assert inject.get().body == text
