"""Rules of core/request.py: one strict grammar of heads, framing without doubt, targets byte for byte.

h11 is the oracle in ../../properties/test_heads.py; what a target may be asked is in test_policy.py.
"""

import pytest

from egress_proxy.core.request import (
    HEAD_END,
    AbsoluteTarget,
    Framing,
    Opening,
    RequestError,
    RequestHead,
    body_framing,
    judge_opening,
    parse_head,
    path_has_dot_segments,
    split_absolute,
)


def head(*lines: str | bytes) -> bytes:
    """A request head of these header lines, as sent."""
    raw = [line if isinstance(line, bytes) else line.encode("latin-1") for line in lines]
    return b"\r\n".join([b"POST http://api.example/x HTTP/1.1", b"Host: api.example", *raw, b"", b""])


def test_a_head_is_read_as_sent() -> None:
    parsed = parse_head(b"GET /a?b=%20 HTTP/1.1\r\nHost: x\r\nX-Y:  a, b\t \r\nx-y:\r\nX:\xe9\r\n\r\n")
    assert parsed == RequestHead(
        "GET",
        b"/a?b=%20",
        (1, 1),
        ((b"Host", b"x"), (b"X-Y", b"a, b"), (b"x-y", b""), (b"X", b"\xe9")),
    )
    assert parsed.values(b"x-y") == (b"a, b", b"")
    assert parsed.values(b"absent") == ()


@pytest.mark.parametrize(
    "text",
    [b"CONNECT ok.example:443 HTTP/1.1\r\n\r\n", b"CONNECT ok.example:443 HTTP/1.0\r\n\r\n",
     b"CONNECT ok.example:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n",
     b"get http://x/ HTTP/1.0\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
     b"!#$%&'*+.^_`|~-9a /x HTTP/1.1\r\n\r\n", b"GET /x|y{z}\"^` HTTP/1.1\r\n\r\n",
     b"GET /x HTTP/1.1\r\n!#$%&'*+.^_`|~-9a: \tx\ty \r\n\r\n"],
)  # fmt: skip
def test_what_rfc_9112_allows_is_taken(text: bytes) -> None:
    parsed = parse_head(text)
    assert text.startswith(parsed.method.encode() + b" " + parsed.target + b" ")
    assert parsed.version == (1, int(text.partition(b" HTTP/1.")[2][:1]))


@pytest.mark.parametrize(
    "text",
    [b"", b"\r\n", b"\r\n\r\n", b"\r\nGET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1",
     b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n\r\nX", b"GET / HTTP/1.1\r\n\r\n\r\n",
     b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", b"GET  / HTTP/1.1\r\n\r\n",
     b"GET /  HTTP/1.1\r\n\r\n", b" GET / HTTP/1.1\r\n\r\n", b"GET\t/ HTTP/1.1\r\n\r\n",
     b"GET / HTTP/1.1 \r\n\r\n", b"GET /a b HTTP/1.1\r\n\r\n", b"GET HTTP/1.1\r\n\r\n",
     b"GET /\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n", b"GET / HTTP/1.2\r\n\r\n",
     b"GET / HTTP/0.9\r\n\r\n", b"GET / HTTP/1.10\r\n\r\n", b"GET / http/1.1\r\n\r\n",
     b"GET / HTTP/11\r\n\r\n", b"GET / HTTP/1.\xb9\r\n\r\n", b"GET / HTTPS/1.1\r\n\r\n",
     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n",
     b"\x16\x03\x01\x02\x00\x01\x00", b"\x05\x01\x00", b"G@T / HTTP/1.1\r\n\r\n",
     b"GET: / HTTP/1.1\r\n\r\n", b"G\xc9T / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"],
)  # fmt: skip
def test_any_other_request_line_is_refused(text: bytes) -> None:
    with pytest.raises(RequestError):
        parse_head(text)


@pytest.mark.parametrize("byte", [*range(0x21), *range(0x7F, 0x100)])
def test_a_request_target_is_visible_ascii(byte: int) -> None:
    for target in (b"/a%cb", b"%c/a", b"/a%c"):
        with pytest.raises(RequestError):
            parse_head(b"GET " + target.replace(b"%c", bytes([byte])) + b" HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("byte", [b for b in range(0x20) if b != 0x09] + [0x7F])
def test_no_control_byte_passes_in_a_header(byte: int) -> None:
    raw = bytes([byte])
    for line in (b"X: a" + raw + b"b", b"X: a" + raw, b"X:" + raw + b"a", b"X" + raw + b": a", raw + b"X: a"):
        with pytest.raises(RequestError):
            parse_head(head(line))


@pytest.mark.parametrize(
    "line",
    ["Content-Length : 5", "Content-Length\t: 5", " X: a", "\tX: a", "X: a\r\n folded",
     "X: a\r\n\tfolded", "X: a\r\n : b", "X: a\rTransfer-Encoding: chunked",
     "X: a\nTransfer-Encoding: chunked", "X: a\x00b", "no colon", ": no name", "", "X(: a",
     "X Y: a", "X\x00: a", "\xe9: a", '"X": a', "X,Y: a", "[X]: a", "@: a"],
)  # fmt: skip
def test_a_header_line_is_name_colon_value_and_nothing_else(line: str) -> None:
    with pytest.raises(RequestError):
        parse_head(head(line, "Y: z"))


def test_a_head_ends_at_its_empty_line() -> None:
    whole = head("X: a")
    assert whole.endswith(HEAD_END)
    assert whole.index(HEAD_END) + len(HEAD_END) == len(whole)
    assert parse_head(whole).values(b"x") == (b"a",)


def test_a_bare_line_feed_ends_nothing() -> None:
    for text in (b"GET / HTTP/1.1\n\n", b"GET / HTTP/1.1\r\nX: a\n\r\n",
                 b"GET / HTTP/1.1\nX: a\r\n\r\n", b"GET / HTTP/1.1\r\nX: a\r\n\n",
                 b"GET / HTTP/1.1\r\n\n"):  # fmt: skip
        with pytest.raises(RequestError):
            parse_head(text)


@pytest.mark.parametrize("second", ["Host: api.example", "host: evil.test", "HOST:"])
def test_two_host_lines_are_refused_even_when_equal(second: str) -> None:
    with pytest.raises(RequestError, match="two hosts"):
        parse_head(head(second))


def test_messages_do_not_quote_what_a_client_sent() -> None:
    for text in (head("X: hunter2", "hunter2"), head("Authorization: hunter2", "Host: hunter2")):
        with pytest.raises(RequestError) as refusal:
            parse_head(text)
        assert "hunter2" not in str(refusal.value)


def test_tokens_of_a_list_are_read_over_all_its_lines() -> None:
    parsed = parse_head(head("Connection: Keep-Alive,\tX-One ,\t,", "connection: x-TWO,,"))
    assert parsed.tokens(b"connection") == {b"keep-alive", b"x-one", b"x-two"}
    assert parsed.tokens(b"upgrade") == frozenset()


@pytest.mark.parametrize(
    "data",
    [b"C", b"CONNECT", b"CONNECT ", b"CONNECT ok.example:443", b"CONNECT ok.example:443 HTTP/1.1\r",
     b"GET / HTTP/1.", b"GET / HTTP/1.0\r\nHost", b"GET / HTTP/1.1\r\n\r\n\x16\x03", b"get /",
     b"PRI * HTTP/2.0"],
)  # fmt: skip
def test_what_may_still_become_a_request_is_waited_for(data: bytes) -> None:
    assert judge_opening(data) is Opening.REQUEST


@pytest.mark.parametrize(
    "data",
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\n", b"GET / HTTP/3\r\n",
     b"hello there, you", b"\r\n", b"\n", b"GET  / HTTP/1.1\r\n", b"GET /\x00", b"EHLO a b c d", b"a\x01",
     b"\rx\n", b"CONNECT ok\xe9"],
)  # fmt: skip
def test_text_that_is_no_request_is_known_early(data: bytes) -> None:
    assert judge_opening(data) is Opening.TEXT


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01\x00", b"\x05\x01\x00", b"\x04\x01\x00P", b"\x00", b"\xff\n"]
)
def test_binary_protocols_are_known_by_their_first_byte(data: bytes) -> None:
    assert judge_opening(data) is judge_opening(data[:1]) is Opening.BINARY


@pytest.mark.parametrize(
    ("lines", "framing"),
    [((), 0), (("Content-Length: 0",), 0), (("content-LENGTH: 5",), 5),
     (("Content-Length:\t5 ",), 5), (("Content-Length: 5", "Content-Length: 5"), 5),
     (("Content-Length: 10",), 10), (("Content-Length: 999999999999999999",), 10**18 - 1),
     (("Transfer-Encoding: chunked",), Framing.CHUNKED),
     (("TRANSFER-ENCODING:chunked\t",), Framing.CHUNKED)],
)  # fmt: skip
def test_a_body_ends_by_one_length_or_by_chunks(lines: tuple[str, ...], framing: int | Framing) -> None:
    assert body_framing(parse_head(head(*lines))) == framing


@pytest.mark.parametrize(
    "lines",
    [("Content-Length: 5", "Content-Length: 6"), ("Content-Length: 5", "Content-Length: 05"),
     ("Content-Length: 0003",), ("Content-Length: 00",), ("Content-Length: 05", "Content-Length: 05"),
     ("Content-Length: +5",), ("Content-Length: -5",), ("Content-Length: 5,5",),
     ("Content-Length: 5, 5",), ("Content-Length: 0x5",), ("Content-Length: 5 5",),
     ("Content-Length: 5.0",), ("Content-Length: 5e0",), ("Content-Length: 1_0",),
     ("Content-Length:",), ("Content-Length: \xb2",), ("Content-Length: 5\xa0",),
     ("Content-Length: 1000000000000000000",), ("Content-Length: " + "9" * 5000,),
     ("Content-Length: chunked",), ("Transfer-Encoding: Chunked",), ("Transfer-Encoding: CHUNKED",),
     ("Transfer-Encoding: chunked,",), ("Transfer-Encoding: ,chunked",),
     ("Transfer-Encoding: chunked, chunked",), ("Transfer-Encoding: \xa0chunked",),
     ("Transfer-Encoding: gzip, chunked",), ("Transfer-Encoding: identity",),
     ("Transfer-Encoding: xchunked",), ("Transfer-Encoding: chunked;q=1",),
     ('Transfer-Encoding: "chunked"',), ("Transfer-Encoding: chun ked",), ("Transfer-Encoding:",),
     ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
     ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
     ("Transfer-Encoding: chunked", "Content-Length: 5"),
     ("Content-Length: 0", "Transfer-Encoding: chunked"),
     ("Transfer-Encoding: identity", "Content-Length: 5")],
)  # fmt: skip
def test_a_doubtful_body_length_is_refused(lines: tuple[str, ...]) -> None:
    parsed = parse_head(head(*lines))
    with pytest.raises(RequestError):
        body_framing(parsed)


def test_chunks_need_http_1_1() -> None:
    parsed = parse_head(b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n")
    with pytest.raises(RequestError):
        body_framing(parsed)


@pytest.mark.parametrize(
    ("target", "split"),
    [(b"http://api.example/", AbsoluteTarget("http", "api.example", b"/")),
     (b"HTTP://API.example:8080/x", AbsoluteTarget("http", "API.example:8080", b"/x")),
     (b"http://api.example", AbsoluteTarget("http", "api.example", b"/")),
     (b"http://api.example?q=1", AbsoluteTarget("http", "api.example", b"/?q=1")),
     (b"http://[::1]:8080/", AbsoluteTarget("http", "[::1]:8080", b"/")),
     (b"http://user:pw@api.example/", AbsoluteTarget("http", "user:pw@api.example", b"/")),
     (b"http://api.example/a%2Fb/%41/../c//d;p=1?x=%20+y&z=%2B&u=/",
      AbsoluteTarget("http", "api.example", b"/a%2Fb/%41/../c//d;p=1?x=%20+y&z=%2B&u=/")),
     (b"http://api.example//evil.test/", AbsoluteTarget("http", "api.example", b"//evil.test/")),
     (b"http://api.example/http://evil.test/?http://b", AbsoluteTarget("http", "api.example",
                                                                       b"/http://evil.test/?http://b")),
     (b"http:///x", AbsoluteTarget("http", "", b"/x")),
     (b"http://api.example\\@evil.test/", AbsoluteTarget("http", "api.example\\@evil.test", b"/")),
     (b"https://api.example/", AbsoluteTarget("https", "api.example", b"/")),
     (b"ftp://api.example/", AbsoluteTarget("ftp", "api.example", b"/"))],
)  # fmt: skip
def test_an_absolute_target_is_split_and_its_path_kept_byte_for_byte(
    target: bytes, split: AbsoluteTarget
) -> None:
    assert split_absolute(target) == split


@pytest.mark.parametrize(
    "target",
    [b"", b"*", b"/", b"/x", b"api.example:443", b"//api.example/", b"http:/api.example/",
     b"http:api.example", b"://api.example/", b"1http://api.example/", b"ht_tp://api.example/",
     b"http://api.example/#f", b"http://api.example#f", b"http://api.example/?q#f",
     b"http://api.example/\xe9", b"http://api.ex\xe4mple/", b"http://api.example/ x",
     b"http://api.example/\n", b"http://api.example\t/"],
)  # fmt: skip
def test_anything_else_is_no_absolute_target(target: bytes) -> None:
    with pytest.raises(RequestError):
        split_absolute(target)


@pytest.mark.parametrize(
    "path",
    [b"/..", b"/../", b"/.", b"/./x", b"/a/..", b"/a/../c", b"/a/./c", b"..", b".", b"/%2e",
     b"/%2e%2e/x", b"/%2E%2E/x", b"/.%2e/x", b"/%2e./x", b"/a%2f..%2fb", b"/a%2F%2e%2e%2Fb",
     b"/a\\..\\b", b"/a%5c..%5Cb", b"/a/..\\b", b"/a/..;/b", b"/a/..;x=y/b", b"/a/.;/b",
     b"/a/%2e%2e%3b/b", b"/a/..?x", b"/..?", b"//../x"],
)  # fmt: skip
def test_a_path_that_climbs_is_found_in_every_spelling(path: bytes) -> None:
    assert path_has_dot_segments(path)


@pytest.mark.parametrize(
    "path",
    [b"", b"/", b"/a/b", b"/a//b", b"/...", b"/..a/b", b"/a../b", b"/.a", b"/a.b/c.d",
     b"/.well-known/x", b"/a%2Fb", b"/%41", b"/c//d;p=1", b"/a;../b", b"/x?y=/../z", b"/x?../..",
     b"/a/b?%2e%2e/", b"/..%3f", b"/..%25", b"/%2e%2ea", b"/a.%2eb", b"/%"],
)  # fmt: skip
def test_ordinary_paths_do_not_climb(path: bytes) -> None:
    assert not path_has_dot_segments(path)
