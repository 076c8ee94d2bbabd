"""Case C38: no trick with framing makes two requests of one, at the proxy or at the upstream.

Every body here would be a request if somebody read it as one. What else a request may be:
test_case_inject_requests.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.case_inject import SECRET, Injecting, open_injecting
from tests.end_to_end.case_parts import MALFORMED, Refusal
from tests.support.byte_stream import End
from tests.support.certificates import CertificateAuthority

CHUNKED = Refusal(501, "chunked-not-supported")
SMUGGLED = b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n"
AS_CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)
START = b"POST http://api.example/ HTTP/1.1\r\nHost: api.example\r\n"


@pytest.fixture(scope="module")
def running(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injecting]:
    with open_injecting(ca, tmp_path_factory.mktemp("inject")) as injecting:
        yield injecting


@pytest.fixture
def inject(running: Injecting) -> Iterator[Injecting]:
    running.begin()
    yield running
    running.finish()


LENGTH = b"Content-Length: %d\r\n" % len(SMUGGLED)
CHUNK = b"Transfer-Encoding: chunked\r\n"

HEADERS: dict[bytes, Refusal] = {
    # Transfer-Encoding: exactly `chunked` alone is understood, and not supported.
    CHUNK: CHUNKED,
    b"transfer-ENCODING:chunked\r\n": CHUNKED,
    b"Transfer-Encoding: \t chunked \t\r\n": CHUNKED,
    b"Transfer-Encoding: Chunked\r\n": MALFORMED,
    b"Transfer-Encoding: CHUNKED\r\n": MALFORMED,
    b"Transfer-Encoding: chunked,\r\n": MALFORMED,
    b"Transfer-Encoding: ,chunked\r\n": MALFORMED,
    b"Transfer-Encoding: chunked;x=1\r\n": MALFORMED,
    b"Transfer-Encoding: gzip, chunked\r\n": MALFORMED,
    b"Transfer-Encoding: chunked, chunked\r\n": MALFORMED,
    b"Transfer-Encoding: chunked, identity\r\n": MALFORMED,
    b"Transfer-Encoding: identity\r\n": MALFORMED,
    b"Transfer-Encoding: xchunked\r\n": MALFORMED,
    b'Transfer-Encoding: "chunked"\r\n': MALFORMED,
    b"Transfer-Encoding: chun ked\r\n": MALFORMED,
    b"Transfer-Encoding:\r\n": MALFORMED,
    b"Transfer-Encoding: \x0bchunked\r\n": MALFORMED,
    b"Transfer-Encoding: chunked\x00\r\n": MALFORMED,
    b"Transfer-Encoding: chunked\xa0\r\n": MALFORMED,
    CHUNK + CHUNK: MALFORMED,
    CHUNK + b"Transfer-Encoding: identity\r\n": MALFORMED,
    b"Transfer-Encoding: identity\r\n" + CHUNK: MALFORMED,
    CHUNK + LENGTH: MALFORMED,
    LENGTH + CHUNK: MALFORMED,
    CHUNK + b"Content-Length: 0\r\n": MALFORMED,
    LENGTH + b"Transfer-Encoding: identity\r\n": MALFORMED,
    # Content-Length: one number of digits.
    b"Content-Length: 5\r\nContent-Length: 6\r\n": MALFORMED,
    LENGTH + b"Content-Length: 0\r\n": MALFORMED,
    LENGTH + b"content-length: 0%d\r\n" % len(SMUGGLED): MALFORMED,
    b"Content-Length: 0%d\r\n" % len(SMUGGLED): MALFORMED,
    b"Content-Length: 00\r\n": MALFORMED,
    b"Content-Length: +5\r\n": MALFORMED,
    b"Content-Length: -5\r\n": MALFORMED,
    b"Content-Length: 5,5\r\n": MALFORMED,
    b"Content-Length: 5, 5\r\n": MALFORMED,
    b"Content-Length: 0x5\r\n": MALFORMED,
    b"Content-Length: 5 5\r\n": MALFORMED,
    b"Content-Length: 5;\r\n": MALFORMED,
    b"Content-Length: 5.0\r\n": MALFORMED,
    b"Content-Length: 1e1\r\n": MALFORMED,
    b"Content-Length: 1_0\r\n": MALFORMED,
    b"Content-Length: \xd9\xa5\r\n": MALFORMED,
    b"Content-Length: \xef\xbc\x95\r\n": MALFORMED,
    b"Content-Length:\r\n": MALFORMED,
    b"Content-Length: five\r\n": MALFORMED,
    b"Content-Length: " + b"9" * 30 + b"\r\n": MALFORMED,
    b"Content-Length: 18446744073709551621\r\n": MALFORMED,
    # Lines that are none.
    b"Content-Length : 5\r\n": MALFORMED,
    b"Content-Length\t: 5\r\n": MALFORMED,
    b"Transfer-Encoding : chunked\r\n": MALFORMED,
    b" Content-Length: 5\r\n": MALFORMED,
    b"\tTransfer-Encoding: chunked\r\n": MALFORMED,
    b"Content-Length 5\r\n": MALFORMED,
    b": 5\r\n": MALFORMED,
    b"X: 1\r\n folded\r\n": MALFORMED,
    b"X: 1\r\n\tfolded: 2\r\n": MALFORMED,
    b"X: 1\r\n \r\n": MALFORMED,
    b"Content-Length:\r\n 5\r\n": MALFORMED,
    b"Transfer-Encoding:\r\n chunked\r\n": MALFORMED,
    b"X: a\rTransfer-Encoding: chunked\r\n": MALFORMED,
    b"X: a\nTransfer-Encoding: chunked\r\n": MALFORMED,
    b"X: a\r\rContent-Length: 5\r\n": MALFORMED,
    b"X: a\r\r\n": MALFORMED,
    b"X: a\n": MALFORMED,
    b"X: a\x00b\r\n": MALFORMED,
    b"X\x00: a\r\n": MALFORMED,
    b"X: \x08\r\n": MALFORMED,
    b"X: \x7f\r\n": MALFORMED,
    b"X\xe9: a\r\n": MALFORMED,
    b"X Y: a\r\n": MALFORMED,
    b"X(Y): a\r\n": MALFORMED,
    b"Content-Length: 5\r\n\r\r\n": MALFORMED,
}


@pytest.mark.parametrize("headers", HEADERS)
def test_doubtful_framing_is_refused_and_nothing_goes_upstream(inject: Injecting, headers: bytes) -> None:
    for body in (SMUGGLED, AS_CHUNKS):
        assert inject.refused(START + headers + b"\r\n" + body) == HEADERS[headers]
    assert inject.provider.octets_received == 0 or not inject.requests


@pytest.mark.parametrize(
    "line",
    [
        b"POST  http://api.example/ HTTP/1.1",
        b"POST http://api.example/  HTTP/1.1",
        b"POST\thttp://api.example/ HTTP/1.1",
        b"POST http://api.example/ HTTP/1.1 ",
        b" POST http://api.example/ HTTP/1.1",
        b"\r\nPOST http://api.example/ HTTP/1.1",
        b"POST http://api.example/\rX HTTP/1.1",
        b"POST http://api.example/\x00 HTTP/1.1",
        b"POST http://api.example/ HTTP/1.1\r",
        b"POST http://api.example/ HTTP/1.1 HTTP/1.1",
        b"POST http://api.example/ HTTP/01.1",
        b"P(ST http://api.example/ HTTP/1.1",
        b"POST http://api.example/",
    ],
)
def test_a_request_line_has_three_parts_and_one_blank_between(inject: Injecting, line: bytes) -> None:
    assert inject.refused(line + b"\r\n" + LENGTH + b"\r\n" + SMUGGLED) == MALFORMED


def test_chunked_of_http_1_0_is_refused(inject: Injecting) -> None:
    start = START.replace(b"HTTP/1.1", b"HTTP/1.0")
    assert inject.refused(start + CHUNK + b"\r\n" + AS_CHUNKS) == MALFORMED


@pytest.mark.parametrize("headers", [LENGTH, LENGTH * 2, LENGTH.replace(b": ", b":\t"), b"X: 1\r\n" + LENGTH])
def test_a_body_is_a_body_and_arrives_as_one(inject: Injecting, headers: bytes) -> None:
    received, end = inject.service.raw_end(START + headers + b"Connection: close\r\n\r\n" + SMUGGLED)
    assert (received.count(b"HTTP/1.1 "), end) == (1, End.EOF)
    request = inject.only_request
    assert (request.target, request.body, request.values("Content-Length")) == (
        "/",
        SMUGGLED,
        [str(len(SMUGGLED))],
    )


def test_framing_in_other_spellings_does_not_travel(inject: Injecting) -> None:
    """Some servers take an underscore for a hyphen, or a header named in Connection for removed."""
    odd = b"Content_Length: 0\r\nTransfer_Encoding: chunked\r\nConnection: Content-Length, close\r\n"
    received, _ = inject.service.raw_end(START + LENGTH + odd + b"\r\n" + SMUGGLED)
    assert received.startswith(b"HTTP/1.1 200 ")
    request = inject.only_request
    assert (request.body, request.values("Content-Length")) == (SMUGGLED, [str(len(SMUGGLED))])
    names = [name.lower() for name, _ in request.headers]
    assert not {"content_length", "transfer_encoding", "transfer-encoding", "connection"} & set(names)


def test_a_body_that_is_cut_off_is_no_request(inject: Injecting) -> None:
    """The client leaves in the middle of its body: the upstream must not take the rest for one."""
    with inject.service.open() as sock:
        sock.sendall(START + b"Content-Length: 1000\r\n\r\n" + SMUGGLED)
        inject.wait()
    assert [r.target for r in inject.requests] in ([], ["/"])
    assert not any(r.whole for r in inject.requests)


def test_no_body_without_a_length(inject: Injecting) -> None:
    """What stands behind is the next request, and is judged as one."""
    received, end = inject.service.raw_end(START + b"\r\n" + SMUGGLED)
    assert (received.count(b"HTTP/1.1 200 "), received.count(b"HTTP/1.1 400 "), end) == (1, 1, End.EOF)
    assert [r.target for r in inject.requests] == ["/"]
    assert SECRET.encode() not in received
