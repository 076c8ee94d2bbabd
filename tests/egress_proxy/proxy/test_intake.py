"""From a parsed head to what it asks for: form and framing alone, before any list is looked at.

No sockets. The grammar of heads is in core/test_request.py, whole conversations are in test_forward.py.
"""

from __future__ import annotations

import pytest

from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.host import Target, parse_authority
from egress_proxy.core.request import RequestHead, parse_head
from egress_proxy.proxy.intake import InjectedRequest, connect_target, injected_request

API = parse_authority("api.ok.example:80")


def head(line: str, *headers: str) -> RequestHead:
    return parse_head("\r\n".join((line, *headers, "", "")).encode("latin-1"))


def injected(line: str, *headers: str, inside: Target | None = None) -> InjectedRequest | Deny:
    return injected_request(head(line, *headers), inside)


def reason(outcome: object) -> Reason:
    assert isinstance(outcome, Deny), outcome
    return outcome.reason


# CONNECT


@pytest.mark.parametrize(
    ("target", "parsed"),
    [
        ("ok.example:443", "ok.example:443"),
        ("OK.Example.:443", "ok.example:443"),
        ("[2001:DB8::1]:443", "[2001:db8::1]:443"),
        ("2001:db8::1:443", "[2001:db8::1]:443"),
        ("192.0.2.1:22", "192.0.2.1:22"),
    ],
)
def test_a_connect_names_its_target_in_authority_form(target: str, parsed: str) -> None:
    assert str(connect_target(head(f"CONNECT {target} HTTP/1.1"))) == parsed


@pytest.mark.parametrize(
    "target",
    [
        "ok.example",
        "ok.example:",
        "ok.example:0",
        "ok.example:65536",
        "https://ok.example:443",
        "[ok.example]:443",
        "user@ok.example:443",
        "ok.example:443/x",
        "ok..example:443",
        "127.1:443",
        "%6fk.example:443",
        "*",
        "/",
    ],
)
def test_a_connect_to_what_is_no_authority_is_malformed(target: str) -> None:
    assert reason(connect_target(head(f"CONNECT {target} HTTP/1.1"))) is Reason.MALFORMED


@pytest.mark.parametrize("host", ["Host: evil.test", "Host:", "X: 1"])
def test_other_headers_of_a_connect_do_not_count(host: str) -> None:
    target = connect_target(head("CONNECT ok.example:443 HTTP/1.1", host))
    assert target == parse_authority("ok.example:443")


@pytest.mark.parametrize(
    "framing", ["Content-Length: 5", "Transfer-Encoding: chunked", "Content-Length: 0x", "Transfer-Encoding:"]
)
def test_a_connect_with_a_body_is_malformed(framing: str) -> None:
    outcome = connect_target(head("CONNECT ok.example:443 HTTP/1.1", framing))
    assert reason(outcome) is Reason.MALFORMED


def test_a_connect_that_says_it_has_no_body_is_fine() -> None:
    target = connect_target(head("CONNECT ok.example:443 HTTP/1.1", "Content-Length: 0", "Content-Length: 0"))
    assert target == parse_authority("ok.example:443")


# Injected requests: the target


PATHS = ["/", "/v1/x?y=z", "/a%2Fb/%41//d;p=1?x=%20+y&z=%2B&u=/..", "/..x/.../x..", "/%2E%2Ex"]


@pytest.mark.parametrize("path", PATHS)
def test_an_absolute_target_gives_host_port_and_path_byte_for_byte(path: str) -> None:
    assert injected(f"GET http://API.ok.example{path} HTTP/1.1") == InjectedRequest(API, path.encode(), 0)


@pytest.mark.parametrize("path", PATHS)
def test_inside_a_connect_the_origin_form_takes_its_target(path: str) -> None:
    assert injected(f"GET {path} HTTP/1.1", inside=API) == InjectedRequest(API, path.encode(), 0)


@pytest.mark.parametrize(
    ("target", "parsed", "path"),
    [
        ("http://api.ok.example?q=1", "api.ok.example:80", b"/?q=1"),
        ("http://api.ok.example", "api.ok.example:80", b"/"),
        ("HTTP://api.ok.example:8080/x", "api.ok.example:8080", b"/x"),
        ("http://[2001:db8::1]/", "[2001:db8::1]:80", b"/"),
        ("http://[2001:db8::1]:81/", "[2001:db8::1]:81", b"/"),
    ],
)
def test_a_port_or_a_path_that_is_not_named_is_the_usual_one(target: str, parsed: str, path: bytes) -> None:
    assert injected(f"GET {target} HTTP/1.1") == InjectedRequest(parse_authority(parsed), path, 0)


FORMS = [
    ("GET / HTTP/1.1", Reason.MALFORMED),
    ("GET /x HTTP/1.1", Reason.MALFORMED),
    ("OPTIONS * HTTP/1.1", Reason.MALFORMED),
    ("GET api.ok.example HTTP/1.1", Reason.MALFORMED),
    ("GET ftp://api.ok.example/ HTTP/1.1", Reason.MALFORMED),
    ("GET http:///x HTTP/1.1", Reason.MALFORMED),
    ("GET http://api.ok.example:/ HTTP/1.1", Reason.MALFORMED),
    ("GET http://api.ok.example:080/ HTTP/1.1", Reason.MALFORMED),
    ("GET http://api.ok.example#f HTTP/1.1", Reason.MALFORMED),
    ("GET http://api.ok.example\\x/ HTTP/1.1", Reason.MALFORMED),
    ("GET http://api.ok.example\\@evil.test/ HTTP/1.1", Reason.INJECT_OTHER_TARGET),
    ("GET http://2130706433/ HTTP/1.1", Reason.MALFORMED),
    ("GET https://api.ok.example/ HTTP/1.1", Reason.INJECT_OTHER_TARGET),
    ("GET http://user:pw@api.ok.example/ HTTP/1.1", Reason.INJECT_OTHER_TARGET),
    ("GET http://api.ok.example@evil.test/ HTTP/1.1", Reason.INJECT_OTHER_TARGET),
    ("TRACE http://api.ok.example/ HTTP/1.1", Reason.METHOD_NOT_ALLOWED),
    ("CONNECT api.ok.example:80 HTTP/1.1", Reason.METHOD_NOT_ALLOWED),
]


@pytest.mark.parametrize(("line", "expected"), FORMS, ids=[line for line, _ in FORMS])
def test_other_forms_of_a_request_are_refused(line: str, expected: Reason) -> None:
    assert reason(injected(line)) is expected


def test_inside_a_connect_another_host_is_refused() -> None:
    same = injected("GET http://api.ok.example/x HTTP/1.1", inside=API)
    assert same == InjectedRequest(API, b"/x", 0)
    for target in ("http://evil.test/x", "http://api.ok.example:81/x"):
        outcome = injected(f"GET {target} HTTP/1.1", inside=API)
        assert reason(outcome) is Reason.INJECT_OTHER_TARGET


@pytest.mark.parametrize("inside", [None, API])
def test_a_host_line_may_only_repeat_the_target(inside: Target | None) -> None:
    line = "GET http://api.ok.example/ HTTP/1.1"
    for value in ("api.ok.example", "API.OK.EXAMPLE.", "api.ok.example:80"):
        assert injected(line, f"Host: {value}", inside=inside) == InjectedRequest(API, b"/", 0)
    for value in ("evil.test", "api.ok.example:81", "", "api.ok.example,evil.test", "\xe4pi.ok.example"):
        assert reason(injected(line, f"Host: {value}", inside=inside)) is Reason.MALFORMED


def test_inside_a_connect_to_another_port_the_host_line_names_that_port() -> None:
    other = parse_authority("api.ok.example:8080")
    assert injected("GET / HTTP/1.1", "Host: api.ok.example:8080", inside=other) == InjectedRequest(
        other, b"/", 0
    )
    assert reason(injected("GET / HTTP/1.1", "Host: api.ok.example", inside=other)) is Reason.MALFORMED


@pytest.mark.parametrize(
    "path", ["/a/../c", "/.", "/a/..", "/%2e%2e/x", "/.%2E/x", "/a%2f..%2fb", "/..\\x", "/..;x/y", "/a/./b"]
)
@pytest.mark.parametrize("inside", [None, API])
def test_dot_segments_in_any_spelling_are_malformed(path: str, inside: Target | None) -> None:
    target = path if inside else f"http://api.ok.example{path}"
    assert reason(injected(f"GET {target} HTTP/1.1", inside=inside)) is Reason.MALFORMED


# Injected requests: the body


POST = "POST http://api.ok.example/ HTTP/1.1"


@pytest.mark.parametrize(
    ("framing", "length"),
    [((), 0), (("Content-Length: 0",), 0), (("Content-Length: 5",), 5), (("content-length: 5",) * 2, 5)],
)
def test_a_body_ends_by_its_one_length(framing: tuple[str, ...], length: int) -> None:
    assert injected(POST, *framing) == InjectedRequest(API, b"/", length)


FRAMINGS = [
    (("Transfer-Encoding: chunked",), Reason.CHUNKED_BODY),
    (("Transfer-Encoding: Chunked",), Reason.MALFORMED),
    (("Transfer-Encoding: chunked,",), Reason.MALFORMED),
    (("Transfer-Encoding: gzip, chunked",), Reason.MALFORMED),
    (("Transfer-Encoding: identity",), Reason.MALFORMED),
    (("Transfer-Encoding: xchunked",), Reason.MALFORMED),
    (("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), Reason.MALFORMED),
    (("Transfer-Encoding: chunked", "Content-Length: 5"), Reason.MALFORMED),
    (("Content-Length: 5", "Content-Length: 6"), Reason.MALFORMED),
    (("Content-Length: +5",), Reason.MALFORMED),
    (("Content-Length: -5",), Reason.MALFORMED),
    (("Content-Length: 5,5",), Reason.MALFORMED),
    (("Content-Length: 0x5",), Reason.MALFORMED),
    (("Content-Length: 5 5",), Reason.MALFORMED),
    (("Content-Length:",), Reason.MALFORMED),
]


@pytest.mark.parametrize(("framing", "expected"), FRAMINGS, ids=[" + ".join(f) for f, _ in FRAMINGS])
def test_doubtful_framing_is_refused(framing: tuple[str, ...], expected: Reason) -> None:
    assert reason(injected(POST, *framing)) is expected


def test_a_chunked_body_of_http_1_0_is_malformed() -> None:
    outcome = injected("POST http://api.ok.example/ HTTP/1.0", "Transfer-Encoding: chunked")
    assert reason(outcome) is Reason.MALFORMED


# Injected requests: what is not supported


@pytest.mark.parametrize("value", ["100-continue", "100-Continue"])
def test_100_continue_may_be_expected(value: str) -> None:
    assert isinstance(injected(POST, "Content-Length: 5", f"Expect: {value}"), InjectedRequest)


@pytest.mark.parametrize("values", [("200-ok",), ("",), ("100-continue", "else"), ("100-continue, else",)])
def test_nothing_else_may_be_expected(values: tuple[str, ...]) -> None:
    outcome = injected(POST, *(f"Expect: {value}" for value in values))
    assert reason(outcome) is Reason.EXPECTATION


@pytest.mark.parametrize("value", ["websocket", "WebSocket", "h2c, websocket"])
def test_a_websocket_is_refused(value: str) -> None:
    outcome = injected("GET http://api.ok.example/ws HTTP/1.1", "Connection: Upgrade", f"Upgrade: {value}")
    assert reason(outcome) is Reason.UPGRADE


def test_an_offer_of_another_protocol_needs_not_be_taken_up() -> None:
    outcome = injected("GET http://api.ok.example/ HTTP/1.1", "Connection: Upgrade", "Upgrade: h2c")
    assert outcome == InjectedRequest(API, b"/", 0)


@pytest.mark.parametrize(
    ("line", "headers"),
    [
        (POST, ("Transfer-Encoding: chunked",)),
        (POST, ("Expect: x",)),
        ("GET http://evil.test/.. HTTP/1.1", ()),
    ],
)
def test_a_refusal_names_the_target_where_there_is_one(line: str, headers: tuple[str, ...]) -> None:
    outcome = injected(line, *headers)
    assert isinstance(outcome, Deny)
    assert outcome.reason in (Reason.CHUNKED_BODY, Reason.EXPECTATION, Reason.MALFORMED)
    assert outcome.target is not None
