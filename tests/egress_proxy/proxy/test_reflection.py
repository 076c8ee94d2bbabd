"""The guard on streams: no whole secret goes out in one, and when bytes go out tells nothing about it.

No sockets. Plain bodies are compared with masking in one go, gzip with what a client can decode; whether a
guesser learns anything is in test_reflection_oracle.py. See egress_proxy/proxy/reflection.py.
"""

import gzip
import random
import time
import tracemalloc
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.proxy import reflection
from egress_proxy.proxy.reflection import (
    BodyGuard,
    BodyNotInspectable,
    GzipInspector,
    Masker,
    PassThrough,
    ReflectionFound,
    body_guard,
)
from egress_proxy.proxy.secret_search import Forms

SECRET = b"sk-CANARY-123"
FORMS = Forms([SECRET, b"Bearer " + SECRET])
EVENT = b'data: {"text":"Hello"}\n\n'

# Two letters, so that forms overlap one another and themselves; no star, which masking writes.
LETTERS = st.sampled_from(b"ab\n")
TEXTS = st.lists(LETTERS, max_size=60).map(bytes)
PLAIN = st.sampled_from(b"ab")
SOME_FORMS = st.lists(st.lists(PLAIN, min_size=1, max_size=9).map(bytes), min_size=1, max_size=5)
CUTS = st.lists(st.integers(1, 25), max_size=30)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The data in pieces of these sizes, then the rest at once."""
    for size in cuts:
        yield data[:size]
        data = data[size:]
    yield data


def fed(guard: BodyGuard, chunk: bytes) -> bytes:
    """What goes out at once for a chunk, however many turns it takes."""
    guard.take(chunk)
    released = guard.release()
    while guard.is_behind:
        guard.go_on()
        released += guard.release()
    return released


def through(guard: BodyGuard, *chunks: bytes) -> bytes:
    return b"".join(fed(guard, chunk) for chunk in chunks) + guard.flush()


def decoded(compressed: bytes) -> bytes:
    """All that a client can make of the beginning of a gzip body."""
    text = b""
    while compressed:
        member = zlib.decompressobj(31)
        text += member.decompress(compressed)
        compressed = member.unused_data
    return text


# Plain bodies


@given(SOME_FORMS, TEXTS, CUTS)
def test_a_masked_stream_holds_no_form_however_it_is_cut(
    forms: list[bytes], data: bytes, cuts: list[int]
) -> None:
    masked = through(Masker(Forms(forms)), *pieces(data, cuts))
    assert len(masked) == len(data)
    assert all(new in (old, ord("*")) for old, new in zip(data, masked, strict=True))
    # Two letters have no line ends: but what stood before one may have gone out.
    assert not any(form in masked for form in forms)


@given(SOME_FORMS, TEXTS, CUTS)
def test_what_a_masker_holds_back_is_told_by_line_ends_and_lengths(
    forms: list[bytes], data: bytes, cuts: list[int]
) -> None:
    guard, compiled, came, released = Masker(Forms(forms)), Forms(forms), b"", 0
    for chunk in pieces(data, cuts):
        came += chunk
        released += len(fed(guard, chunk))
        since_line_end = len(came) - (came.rfind(b"\n") + 1)
        assert len(came) - released == min(since_line_end, compiled.window_bytes)
        assert guard.holds == (released < len(came))


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_split_over_two_chunks_is_starred(cut: int) -> None:
    guard = Masker(FORMS)
    assert fed(guard, b"key=" + SECRET[:cut]) == b""
    assert fed(guard, SECRET[cut:] + b";\n") == b"key=" + b"*" * len(SECRET) + b";\n"
    assert guard.flush() == b""


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_of_a_secret_whose_beginning_has_gone_out_the_rest_is_starred(cut: int) -> None:
    guard = Masker(FORMS)
    guard.take(b"key=" + SECRET[:cut])
    assert guard.flush() == b"key=" + SECRET[:cut]
    guard.take(SECRET[cut:] + b";")
    assert guard.flush() == b"*" * (len(SECRET) - cut) + b";"


def test_a_secret_that_comes_byte_by_byte_is_starred() -> None:
    data = b"x" + SECRET + b"Bearer " + SECRET + b"y"
    masked = through(Masker(FORMS), *(data[at : at + 1] for at in range(len(data))))
    assert masked == b"x" + b"*" * (len(data) - 2) + b"y"


@pytest.mark.parametrize("event", [EVENT, b"data: [DONE]\n\n", b"sk-CANARY-12\n", b"\0\xff\n"])
def test_an_event_goes_out_at_once(event: bytes) -> None:
    guard = Masker(FORMS)
    assert fed(guard, event) == event
    assert not guard.holds


def test_bulk_without_line_ends_waits_in_a_window_only() -> None:
    guard = Masker(FORMS)
    assert len(fed(guard, bytes(100_000))) == 100_000 - FORMS.window_bytes


def test_base64_that_a_line_end_breaks_is_starred_as_far_as_it_has_not_gone_out() -> None:
    guard, encoded = Masker(Forms([SECRET])), b"c2stQ0FOQVJZLTEyMw=="
    assert fed(guard, encoded[:8] + b"\n" + encoded[8:] + b"\n") == b"*" * 18 + encoded[-3:] + b"\n"
    assert fed(guard, encoded[:8] + b"\n") == encoded[:8] + b"\n"
    assert fed(guard, encoded[8:] + b"\n") == b"*" * 9 + encoded[-3:] + b"\n"


def test_masking_stops_at_nothing_between_two_secrets() -> None:
    assert through(Masker(FORMS), SECRET + b"-" + SECRET * 2) == b"*" * 13 + b"-" + b"*" * 26


def test_without_a_secret_nothing_waits() -> None:
    assert fed(Masker(Forms([])), b"no line end") == b"no line end"


# gzip bodies


def gzipped(text: bytes, level: int = 6) -> bytes:
    return gzip.compress(text, level, mtime=0)


MEMBERS = st.lists(st.tuples(TEXTS, st.sampled_from([0, 1, 9])), min_size=1, max_size=3)


@given(SOME_FORMS, MEMBERS, CUTS)
def test_no_cut_of_a_gzip_body_gives_a_client_a_form(
    forms: list[bytes], members: list[tuple[bytes, int]], cuts: list[int]
) -> None:
    text = b"".join(part for part, _ in members)
    body = b"".join(gzipped(part, level) for part, level in members)
    compiled, guard, released = Forms(forms), GzipInspector(Forms(forms)), b""
    try:
        for chunk in pieces(body, cuts):
            released += fed(guard, chunk)
        released += guard.flush()
    except ReflectionFound:
        assert compiled.found_in(text)
    else:
        assert not compiled.found_in(text)
        assert released == body
    assert not any(form in decoded(released) for form in forms)


@given(st.binary(max_size=200), st.sampled_from([0, 1, 9]), CUTS)
def test_a_clean_gzip_body_passes_byte_for_byte(text: bytes, level: int, cuts: list[int]) -> None:
    body = gzipped(text, level)
    assert through(GzipInspector(FORMS), *pieces(body, cuts)) == body


def flushed(*events: bytes) -> Iterator[bytes]:
    """A gzip stream in the pieces that a server sends when it flushes after each event."""
    stream = zlib.compressobj(wbits=31)
    for event in events:
        yield stream.compress(event) + stream.flush(zlib.Z_SYNC_FLUSH)


def test_flushed_gzip_events_go_out_at_once() -> None:
    guard = GzipInspector(FORMS)
    for piece in flushed(EVENT, b"data: 2\n\n", EVENT):
        assert fed(guard, piece) == piece
        assert not guard.holds


def test_gzip_text_without_a_line_end_waits_for_what_follows() -> None:
    guard = GzipInspector(FORMS)
    first, second, third = flushed(b"a sk-CAN", b"harmless", b"!\n")
    assert fed(guard, first) == b""
    assert fed(guard, second) == b""
    assert guard.holds
    assert fed(guard, third) == first + second + third


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_over_two_gzip_flushes_is_found_before_it_has_gone_out(cut: int) -> None:
    guard = GzipInspector(FORMS)
    lead, first, second = flushed(b"key=\n", SECRET[:cut], SECRET[cut:])
    assert fed(guard, lead) == lead
    assert fed(guard, first) == b""
    with pytest.raises(ReflectionFound):
        guard.take(second)


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_whose_beginning_has_gone_out_as_gzip_does_not_end(cut: int) -> None:
    guard = GzipInspector(FORMS)
    first, second = flushed(SECRET[:cut], SECRET[cut:])
    guard.take(first)
    assert guard.flush() == first
    with pytest.raises(ReflectionFound):
        guard.take(second)


def header(flags: int, fields: bytes) -> bytes:
    """A gzip member with these optional fields (RFC 1952 2.3)."""
    body = gzipped(b"clean")
    return body[:3] + bytes([flags]) + body[4:10] + fields + body[10:]


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(
    "body",
    [
        header(8, SECRET + b".txt\0"),
        header(16, b"a comment: " + SECRET + b"\0"),
        header(4, bytes([len(SECRET), 0]) + SECRET),
        gzipped(b"clean") + header(8, SECRET + b"\0"),
    ],
)
def test_a_secret_in_a_field_of_a_gzip_header_is_found(body: bytes, size: int) -> None:
    assert b"clean" in gzip.decompress(body)
    with pytest.raises(ReflectionFound):
        through(GzipInspector(FORMS), *(body[at : at + size] for at in range(0, len(body), size)))


def test_a_secret_over_two_members_is_found() -> None:
    guard = GzipInspector(FORMS)
    guard.take(gzipped(SECRET[:5]))
    with pytest.raises(ReflectionFound):
        guard.take(gzipped(SECRET[5:]))


@pytest.mark.parametrize("padding", [b"", b"\0", b"\0" * 9])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_member_behind_padding_is_inspected(padding: bytes, size: int) -> None:
    """Python's gzip reads it; whoever took it for garbage would let the secret through."""
    body = gzipped(b"clean") + padding + gzipped(SECRET)
    assert gzip.decompress(body) == b"clean" + SECRET
    with pytest.raises(ReflectionFound):
        through(GzipInspector(FORMS), *(body[at : at + size] for at in range(0, len(body), size)))


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_bytes_behind_the_last_member_are_looked_at_as_they_are(size: int) -> None:
    harmless = gzipped(b"clean") + b"\0garbage sk-CANARY-124"
    chunks = [harmless[at : at + size] for at in range(0, len(harmless), size)]
    assert through(GzipInspector(FORMS), *chunks) == harmless
    with pytest.raises(ReflectionFound):
        through(GzipInspector(FORMS), *chunks, b"; " + SECRET[:4], SECRET[4:])


def test_garbage_behind_the_last_member_is_not_read_as_gzip() -> None:
    body = gzipped(b"clean") + b"x" + gzipped(SECRET)
    assert through(GzipInspector(FORMS), body) == body


NOT_GZIP = [
    b"plain text",
    b"\0" + gzipped(b"x"),
    zlib.compress(b"zlib, not gzip"),
    gzipped(b"x")[:-8] + b"\0" * 8,  # wrong checksum
    gzipped(b"x") + b"\x1f\x8bnot a member",
]


@pytest.mark.parametrize("body", NOT_GZIP)
def test_a_body_that_is_not_gzip_is_refused(body: bytes) -> None:
    with pytest.raises(BodyNotInspectable):
        through(GzipInspector(FORMS), body)


@pytest.mark.parametrize(("ending", "refusal"), [(SECRET[7:], ReflectionFound), (b"", BodyNotInspectable)])
def test_a_refused_body_gives_nothing_more(ending: bytes, refusal: type[Exception]) -> None:
    """Not to a caller's clean-up either, which may ask for the rest of what was held back."""
    guard = GzipInspector(FORMS)
    (held, more) = flushed(SECRET[:7], ending)
    assert fed(guard, held) == b""
    with pytest.raises(refusal):
        guard.take(more if ending else b"\xff" * 20)
    with pytest.raises(refusal):
        guard.take(b"\0")
    with pytest.raises(refusal):
        guard.release()
    with pytest.raises(refusal):
        guard.flush()


def test_an_empty_body_ends_well_under_any_guard() -> None:
    for guard in (Masker(FORMS), GzipInspector(FORMS), PassThrough()):
        assert through(guard) == b""
        assert through(guard, b"") == b""


def test_the_end_of_a_gzip_body_releases_what_was_held() -> None:
    guard = GzipInspector(FORMS)
    body = gzipped(b"the end: sk-CAN")
    assert fed(guard, body) == b""
    assert guard.flush() == body
    assert guard.flush() == b""


def test_a_bomb_is_looked_at_in_turns() -> None:
    guard, turns = GzipInspector(FORMS), 1
    guard.take(gzipped(bytes(5_000_000), 9))
    while guard.is_behind:
        guard.go_on()
        turns += 1
    assert turns > 5_000_000 // 200_000


def test_a_bomb_takes_no_memory_and_passes() -> None:
    body = gzipped(bytes(50_000_000), 9)
    tracemalloc.start()
    try:
        assert through(GzipInspector(FORMS), body) == body
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_thirty_two_bombs_in_one_round_of_the_loop_hold_it_for_less_than_50_ms() -> None:
    """Thread time: what others on a busy machine take is not ours."""
    bomb, guards = gzipped(bytes(2_000_000), 9), [GzipInspector(FORMS) for _ in range(32)]
    longest_s, round_s = 0.0, 0.0
    while round_s == 0.0 or any(guard.is_behind for guard in guards):
        started = time.thread_time()
        for guard in guards:
            if round_s == 0.0:
                guard.take(bomb)
            elif guard.is_behind:
                guard.go_on()
            guard.release()
        round_s = time.thread_time() - started
        longest_s = max(longest_s, round_s)
    assert longest_s < 0.05


@pytest.mark.parametrize("text_step", [1, 2, 259, 65_536])
@pytest.mark.parametrize("size", [1, 64, 100_000])
def test_no_text_stays_unseen_inside_zlib(monkeypatch: pytest.MonkeyPatch, text_step: int, size: int) -> None:
    """A full step of output may leave more behind with all of the input consumed."""
    monkeypatch.setattr(reflection, "_TEXT_STEP_BYTES", text_step)
    (piece,) = flushed(b"ab" * 400 + SECRET)
    guard = GzipInspector(FORMS)
    released: list[bytes] = []
    chunks = [piece[at : at + size] for at in range(0, len(piece), size)]
    with pytest.raises(ReflectionFound):
        released.extend(fed(guard, chunk) for chunk in chunks)
    assert SECRET not in decoded(b"".join(released))


def test_of_a_large_chunk_only_a_small_part_waits_for_what_follows() -> None:
    (body,) = flushed(random.Random(1).randbytes(100_000).replace(b"\n", b"") + b"sk-CAN")
    released = fed(GzipInspector(FORMS), body)
    assert 0 < len(body) - len(released) <= 10_000


# Which guard


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize(
    ("encodings", "kind"),
    [
        (None, Masker),
        (b"", Masker),
        (b"identity", Masker),
        (b"Identity, ,identity", Masker),
        (b"gzip", GzipInspector),
        (b"GZip", GzipInspector),
        (b" x-gzip\t", GzipInspector),
        (b"identity, gzip", GzipInspector),
    ],
)
def test_codings_that_can_be_read_get_their_guard(encodings: bytes | None, kind: type, opaque: bool) -> None:
    assert type(body_guard(encodings, FORMS, opaque)) is kind


@pytest.mark.parametrize(
    "encodings", [b"br", b"zstd", b"deflate", b"gzip, gzip", b"gzip, br", b"gzip;q=1", b"\xff"]
)
def test_other_codings_are_refused_unless_the_rule_lets_them_pass(encodings: bytes) -> None:
    assert body_guard(encodings, FORMS, opaque=False) is None
    guard = body_guard(encodings, FORMS, opaque=True)
    assert isinstance(guard, PassThrough)
    assert through(guard, b"a" + SECRET, b"b") == b"a" + SECRET + b"b"
