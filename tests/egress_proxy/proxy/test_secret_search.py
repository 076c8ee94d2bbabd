"""What stands where in the data: forms, and tails that more bytes could make a form of.

Plain bytes, no streams: those are in test_reflection.py. See egress_proxy/proxy/secret_search.py.
"""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.proxy.secret_search import Forms

# Two letters, so that forms overlap one another and themselves; no star, which masking writes.
LETTERS = st.sampled_from(b"ab")
TEXTS = st.lists(LETTERS, max_size=60).map(bytes)
FORMS = st.lists(st.lists(LETTERS, min_size=1, max_size=9).map(bytes), min_size=1, max_size=5)


def proper_prefixes(forms: list[bytes]) -> set[bytes]:
    return {form[:length] for form in forms for length in range(1, len(form))}


@pytest.mark.parametrize(
    ("data", "masked"),
    [
        (b"", b""),
        (b"nothing", b"nothing"),
        (b"sk-1", b"****"),
        (b"xsk-1y", b"x****y"),
        (b"sk-1sk-1", b"********"),
        (b"Bearer sk-1", b"***********"),
        (b"Bearer sk-2 sk-1", b"Bearer sk-2 ****"),
        (b"SK-1 sk-", b"SK-1 sk-"),
    ],
)
def test_every_occurrence_is_starred_in_its_own_length(data: bytes, masked: bytes) -> None:
    forms = Forms([b"sk-1", b"Bearer sk-1"])
    assert forms.mask(data) == masked
    assert forms.found_in(data) == (data != masked)


def test_forms_are_bytes_and_not_patterns() -> None:
    forms = Forms([b"a.*|[b]\\", b"^x$"])
    assert forms.mask(b"aXX|b ^x$ a.*|[b]\\") == b"aXX|b *** ********"
    assert forms.unfinished(b"a.*", 0) == 0
    assert forms.unfinished(b"aXX", 0) == 3


@pytest.mark.parametrize("none", [[], [b""]])
def test_without_forms_nothing_is_found(none: list[bytes]) -> None:
    forms = Forms(none)
    assert forms.mask(b"anything") == b"anything"
    assert not forms.found_in(b"anything")
    assert forms.first_in(b"anything", 0) is None
    assert forms.unfinished(b"anything", 0) == 8


def test_the_leftmost_form_is_found_first_and_there_the_longest() -> None:
    hit = Forms([b"ab", b"abcd", b"bcde"]).first_in(b"xabcde", 0)
    assert hit is not None
    assert (hit.start(), hit[0]) == (1, b"abcd")


def test_a_form_is_looked_for_from_the_start_given() -> None:
    hit = Forms([b"ab"]).first_in(b"abxab", 1)
    assert hit is not None
    assert hit.start() == 3


@pytest.mark.parametrize(
    ("data", "start", "at"),
    [
        (b"x", 0, 1),
        (b"xs", 0, 1),
        (b"xsk", 0, 1),
        (b"xsk-", 0, 1),
        (b"xsk-1", 0, 5),  # whole, not a beginning
        (b"sk-sk", 0, 3),
        (b"ssk", 0, 1),
        (b"sk-x", 0, 4),
        (b"Bearer sk", 0, 0),  # the longest tail, though a shorter one is a beginning as well
        (b"Bearer sk", 1, 7),
        (b"Bearer sk", 8, 9),
        (b"", 0, 0),
    ],
)
def test_a_tail_that_a_form_begins_with_is_unfinished(data: bytes, start: int, at: int) -> None:
    assert Forms([b"sk-1", b"Bearer sk-1"]).unfinished(data, start) == at


def test_an_unfinished_tail_may_begin_inside_a_likely_one() -> None:
    assert Forms([b"aaab"]).unfinished(b"xaaaa", 0) == 2


@given(FORMS, TEXTS, st.integers(0, 60))
def test_the_unfinished_tail_is_the_longest_proper_prefix(
    forms: list[bytes], data: bytes, start: int
) -> None:
    start = min(start, len(data))
    beginnings = proper_prefixes(forms)
    tails = [at for at in range(start, len(data)) if data[at:] in beginnings]
    assert Forms(forms).unfinished(data, start) == min(tails, default=len(data))


@given(FORMS, TEXTS)
def test_masked_data_is_as_long_and_holds_no_form(forms: list[bytes], data: bytes) -> None:
    masked = Forms(forms).mask(data)
    assert len(masked) == len(data)
    assert not any(form in masked for form in forms)
    assert all(new in (old, ord("*")) for old, new in zip(data, masked, strict=True))


def test_the_tail_of_a_megabyte_costs_no_more_than_that_of_a_form() -> None:
    """The bound is that of a hang: looking at all of the data would take many seconds."""
    forms = Forms([b"a" * 200 + b"b"])
    data = b"a" * 1_000_000 + b"c"
    started = time.monotonic()
    assert forms.unfinished(data, 0) == len(data)
    assert time.monotonic() - started < 1
