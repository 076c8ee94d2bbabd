"""The guard on streams: nothing that completes a secret goes out, and nothing waits without need.

No sockets. Plain bodies are compared with masking in one go, gzip with what a client can decode.
See egress_proxy/proxy/reflection.py.
"""

import gzip
import random
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
LETTERS = st.sampled_from(b"ab")
TEXTS = st.lists(LETTERS, max_size=60).map(bytes)
SOME_FORMS = st.lists(st.lists(LETTERS, min_size=1, max_size=9).map(bytes), min_size=1, max_size=5)
# Longer ones, with a third letter in the texts, so that some texts hold none of them.
LONGER_FORMS = st.lists(st.lists(LETTERS, min_size=3, max_size=9).map(bytes), min_size=1, max_size=3)
SPACED_TEXTS = st.lists(st.sampled_from(b"ab."), max_size=60).map(bytes)
CUTS = st.lists(st.integers(1, 25), max_size=30)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The data in pieces of these sizes, then the rest at once."""
    for size in cuts:
        yield data[:size]
        data = data[size:]
    yield data


def through(guard: BodyGuard, *chunks: bytes) -> bytes:
    return b"".join(map(guard.feed, chunks)) + guard.finish()


def decoded(compressed: bytes) -> bytes:
    """All that a client can make of the beginning of a gzip body."""
    text = b""
    while compressed:
        member = zlib.decompressobj(31)
        text += member.decompress(compressed)
        compressed = member.unused_data
    return text


def begins_a_form(tail_of: bytes, forms: list[bytes]) -> bool:
    beginnings = {form[:length] for form in forms for length in range(1, len(form))}
    return any(tail_of.endswith(beginning) for beginning in beginnings)


# Plain bodies


@given(SOME_FORMS, TEXTS, CUTS)
def test_a_masked_stream_equals_the_masked_whole_however_it_is_cut(
    forms: list[bytes], data: bytes, cuts: list[int]
) -> None:
    masked = through(Masker(Forms(forms)), *pieces(data, cuts))
    assert masked == Forms(forms).mask(data)
    assert len(masked) == len(data)
    assert not any(form in masked for form in forms)


@given(SOME_FORMS, TEXTS, CUTS)
def test_what_a_masker_holds_back_is_a_proper_prefix_of_a_form(
    forms: list[bytes], data: bytes, cuts: list[int]
) -> None:
    guard, fed, released = Masker(Forms(forms)), b"", 0
    for chunk in pieces(data, cuts):
        fed += chunk
        released += len(guard.feed(chunk))
        held = fed[released:]
        assert held == b"" or any(form != held and form.startswith(held) for form in forms)


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_split_over_two_chunks_is_starred(cut: int) -> None:
    guard = Masker(FORMS)
    assert guard.feed(b"key=" + SECRET[:cut]) == b"key="
    assert guard.feed(SECRET[cut:] + b";") == b"*" * len(SECRET) + b";"
    assert guard.finish() == b""
    assert guard.hits == 1


def test_a_secret_that_comes_byte_by_byte_is_starred() -> None:
    guard = Masker(FORMS)
    data = b"x" + SECRET + b"Bearer " + SECRET + b"y"
    masked = through(guard, *(data[at : at + 1] for at in range(len(data))))
    assert masked == b"x" + b"*" * (len(data) - 2) + b"y"
    assert guard.hits == 2


@pytest.mark.parametrize("event", [EVENT, b"data: [DONE]\n\n", b"sk-CANARY-124", b"\0\xff", b"k"])
def test_an_event_goes_out_at_once(event: bytes) -> None:
    assert Masker(FORMS).feed(event) == event


def test_a_tail_that_turned_out_harmless_goes_out_with_what_follows() -> None:
    guard = Masker(FORMS)
    assert guard.feed(b"a sk-CAN") == b"a "
    assert guard.feed(b"sk-C") == b"sk-CAN"
    assert guard.feed(b"!") == b"sk-C!"
    assert guard.hits == 0


def test_the_end_releases_a_tail_that_was_never_completed() -> None:
    assert through(Masker(FORMS), b"the end: sk-CANARY-12") == b"the end: sk-CANARY-12"


def test_a_form_that_a_longer_one_begins_with_waits_and_is_starred_at_the_end() -> None:
    guard = Masker(Forms([b"sk-1", b"sk-1;v=2"]))
    assert guard.feed(b"a sk-1") == b"a "
    assert guard.finish() == b"****"
    assert guard.hits == 1
    assert guard.finish() == b""


def test_masking_stops_at_nothing_between_two_secrets() -> None:
    guard = Masker(FORMS)
    assert through(guard, SECRET + b"-" + SECRET * 2) == b"*" * 13 + b"-" + b"*" * 26
    assert guard.hits == 3


# gzip bodies


def gzipped(text: bytes, level: int = 6) -> bytes:
    return gzip.compress(text, level, mtime=0)


MEMBERS = st.lists(st.tuples(SPACED_TEXTS, st.sampled_from([0, 1, 9])), min_size=1, max_size=3)


@given(LONGER_FORMS, MEMBERS, CUTS)
def test_no_cut_of_a_gzip_body_gives_a_client_the_end_or_beginning_of_a_form(
    forms: list[bytes], members: list[tuple[bytes, int]], cuts: list[int]
) -> None:
    text = b"".join(part for part, _ in members)
    body = b"".join(gzipped(part, level) for part, level in members)
    guard, released = GzipInspector(Forms(forms)), b""
    try:
        for chunk in pieces(body, cuts):
            released += guard.feed(chunk)
            assert not begins_a_form(decoded(released), forms)
    except ReflectionFound:
        assert any(form in text for form in forms)
        assert guard.hits == 1
    else:
        assert not any(form in text for form in forms)
        assert released + guard.finish() == body
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
        assert guard.feed(piece) == piece


def test_gzip_that_ends_like_a_secret_begins_waits_for_what_follows() -> None:
    guard = GzipInspector(FORMS)
    first, second, third = flushed(b"a sk-CAN", b"sk-CA", b"!")
    assert guard.feed(first) == b""
    assert guard.feed(second) == b""
    assert guard.feed(third) == first + second + third


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_over_two_gzip_flushes_is_found_before_it_began_to_go_out(cut: int) -> None:
    guard = GzipInspector(FORMS)
    lead, first, second = flushed(b"key=", SECRET[:cut], SECRET[cut:])
    assert guard.feed(lead) == lead
    assert guard.feed(first) == b""
    with pytest.raises(ReflectionFound):
        guard.feed(second)


def test_a_secret_over_two_members_is_found() -> None:
    guard = GzipInspector(FORMS)
    guard.feed(gzipped(SECRET[:5]))
    with pytest.raises(ReflectionFound):
        guard.feed(gzipped(SECRET[5:]))


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
    assert guard.feed(held) == b""
    with pytest.raises(refusal):
        guard.feed(more if ending else b"\xff" * 20)
    with pytest.raises(refusal):
        guard.feed(b"\0")
    with pytest.raises(refusal):
        guard.finish()
    assert guard.hits == (refusal is ReflectionFound)


def test_an_empty_body_ends_well_under_any_guard() -> None:
    for guard in (Masker(FORMS), GzipInspector(FORMS), PassThrough()):
        assert through(guard) == b""
        assert through(guard, b"") == b""


def test_the_end_of_a_gzip_body_releases_what_was_held() -> None:
    guard = GzipInspector(FORMS)
    body = gzipped(b"the end: sk-CAN")
    assert guard.feed(body) == b""
    assert guard.finish() == body
    assert guard.finish() == b""


def test_a_bomb_takes_no_memory_and_passes() -> None:
    body = gzipped(bytes(50_000_000), 9)
    tracemalloc.start()
    try:
        assert through(GzipInspector(FORMS), body) == body
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


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
        released.extend(map(guard.feed, chunks))
    assert not begins_a_form(decoded(b"".join(released)), [SECRET])


def test_a_body_made_to_be_held_back_is_refused_at_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reflection, "_HELD_LIMIT_BYTES", 1_000)
    guard = GzipInspector(FORMS)
    released: list[bytes] = []
    with pytest.raises(BodyNotInspectable):
        released.extend(map(guard.feed, flushed(*[b"x sk-CAN"] * 1_000)))
    assert b"".join(released) == b""
    assert 50 < len(released) < 1_000


def test_of_a_large_chunk_only_a_small_part_waits_for_what_follows() -> None:
    (body,) = flushed(random.Random(1).randbytes(100_000) + b"sk-CAN")
    released = GzipInspector(FORMS).feed(body)
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
    assert guard.hits == 0
