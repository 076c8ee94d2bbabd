"""Request heads: whatever we take, h11 takes as the same request with the same body, and never the reverse.

Tables of cases are in ../egress_proxy/core/test_request.py.
"""

import h11
from hypothesis import example, given
from hypothesis import strategies as st

from egress_proxy.core.request import (
    HEAD_END,
    Framing,
    Opening,
    RequestError,
    RequestHead,
    body_framing,
    judge_opening,
    parse_head,
    split_absolute,
)
from tests.properties.strategies import heads

NEXT = b"GET /next HTTP/1.1\r\n"


def taken(head: bytes) -> tuple[RequestHead, int | Framing] | None:
    """What we read of a head, None where head or body length are refused."""
    try:
        parsed = parse_head(head)
        return parsed, body_framing(parsed)
    except RequestError:
        return None


def oracle(
    head: bytes, parsed: RequestHead
) -> tuple[h11.Connection, h11.Event | type[h11.NEED_DATA | h11.PAUSED]]:
    """h11's reading. It insists on a Host in HTTP/1.1; we accept its absence (contract section 8)."""
    if parsed.version == (1, 1) and not parsed.values(b"host"):
        head = head.removesuffix(b"\r\n") + b"Host: oracle\r\n\r\n"
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    server.receive_data(head)
    return server, server.next_event()


def folded(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Names in lower case; equal lengths once, as h11 reads them; without the Host that we lent."""
    kept: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        pair = (name.lower(), value)
        if pair != (b"host", b"oracle") and not (pair[0] == b"content-length" and pair in kept):
            kept.append(pair)
    return kept


@given(heads)
@example(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n")
@example(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
@example(b"CONNECT ok.example:443 HTTP/1.1\r\n\r\n")
def test_what_is_taken_is_the_same_request_to_h11(head: bytes) -> None:
    result = taken(head)
    if result is None:
        return
    parsed, _ = result
    _, event = oracle(head, parsed)
    assert isinstance(event, h11.Request)
    assert event.method == parsed.method.encode()
    assert event.target == parsed.target
    assert event.http_version == b"%d.%d" % parsed.version
    assert folded(list(event.headers)) == folded(list(parsed.headers))


@given(heads)
def test_what_h11_refuses_is_refused(head: bytes) -> None:
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    server.receive_data(head)
    try:
        event = server.next_event()
    except h11.RemoteProtocolError as refusal:
        lent = str(refusal) == "Missing mandatory Host: header"
        assert lent or taken(head) is None
        return
    assert isinstance(event, h11.Request) or taken(head) is None


@given(heads)
@example(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
@example(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
@example(b"CONNECT x:80 HTTP/1.1\r\nContent-Length: 5\r\n\r\n")
def test_the_body_ends_where_h11_sees_its_end(head: bytes) -> None:
    result = taken(head)
    if result is None:
        return
    parsed, framing = result
    if isinstance(framing, int) and framing > 1 << 16:
        return
    server, _ = oracle(head, parsed)
    server.receive_data(
        (b"5\r\nhello\r\n0\r\n\r\n" if framing is Framing.CHUNKED else b"x" * int(str(framing))) + NEXT
    )
    events: list[object] = []
    while not events or isinstance(events[-1], h11.Data):
        events.append(server.next_event())
    length = sum(len(event.data) for event in events if isinstance(event, h11.Data))
    assert length == (5 if framing is Framing.CHUNKED else framing)
    assert isinstance(events[-1], h11.EndOfMessage)
    assert server.trailing_data[0] == NEXT


@given(heads)
def test_a_head_that_is_taken_is_written_again_as_itself(head: bytes) -> None:
    """Nothing of the bytes is left out of the parts: what is judged is all there is."""
    try:
        parsed = parse_head(head)
    except RequestError:
        return
    assert head.count(HEAD_END) == 1
    lines = head.split(b"\r\n")
    assert lines[0] == b"%s %s HTTP/%d.%d" % (parsed.method.encode(), parsed.target, *parsed.version)
    assert len(lines) == len(parsed.headers) + 3
    for line, (name, value) in zip(lines[1:-2], parsed.headers, strict=True):
        assert line.startswith(name + b":")
        assert line[len(name) + 1 :].strip(b" \t") == value


@given(heads, st.binary(min_size=1, max_size=8))
def test_bytes_behind_a_head_never_become_part_of_it(head: bytes, more: bytes) -> None:
    try:
        parse_head(head)
    except RequestError:
        return
    for text in (head + more, head[:-1], more + b"\r\n" + head):
        try:
            assert parse_head(text).target != b""
        except RequestError:
            continue
        assert text == more + b"\r\n" + head


@given(heads | st.binary(min_size=1, max_size=30))
def test_nothing_that_could_become_a_request_is_given_up_early(data: bytes) -> None:
    """From the first beginning that is given up on, no longer text is ever taken."""
    openings = [judge_opening(data[:length]) is Opening.REQUEST for length in range(1, len(data) + 1)]
    assert openings == sorted(openings, reverse=True)
    assert all(openings) or taken(data) is None


@given(st.binary(max_size=60) | heads.map(lambda head: head.split(b" ")[1] if b" " in head else head))
def test_an_absolute_target_is_split_without_loss_or_refused(target: bytes) -> None:
    try:
        parts = split_absolute(target)
    except RequestError:
        return
    front = target.partition(b"://")[0] + b"://" + parts.authority.encode()
    assert target in (front + parts.path, front + parts.path[1:])
    assert parts.path.startswith(b"/")
    assert parts.authority.isascii()
    assert not set("/?# ") & set(parts.authority)
