"""Whoever cuts a request up, or sends it later, gets the same answer: the seeds, and inputs that are drawn.

Searching for more is python -m tests.fuzz ways; whatever it finds becomes a seed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.differences import difference, shortened
from tests.fuzz.fuzz_ways import drawn_inputs, found, kind_of
from tests.fuzz.ways import Seen, Way, Ways
from tests.support.byte_stream import End

SEEDS = sorted(Path(__file__).with_name("seeds").glob("ways/*"))
DRAWN = 60  # as many as take some seconds

REFUSED = Seen(b'HTTP/1.1 400 Bad Request\r\n\r\n{"reason": "malformed"}', End.EOF, ("deny GET",), (), (), ())


@pytest.fixture
def ways() -> Iterator[Ways]:
    with Ways() as played:
        yield played


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
def test_a_seed_gets_one_answer_by_all_ways(seed: Path, ways: Ways) -> None:
    assert kind_of(ways, seed.read_bytes()) is None


@pytest.mark.parametrize("needs_token", [False, True])
def test_what_is_drawn_gets_one_answer_by_all_ways(needs_token: bool) -> None:
    with Ways(needs_token=needs_token) as played:
        assert found(played, itertools.islice(drawn_inputs(int(needs_token)), DRAWN)) == {}


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(REFUSED, answer=b""),
        dataclasses.replace(REFUSED, answer=REFUSED.answer.replace(b"400", b"431")),
        dataclasses.replace(REFUSED, answer=REFUSED.answer.replace(b"malformed", b"not_http")),
        dataclasses.replace(REFUSED, answer=REFUSED.answer + b"x"),
        dataclasses.replace(REFUSED, end=End.RESET),
        dataclasses.replace(REFUSED, lines=("deny POST",)),
        dataclasses.replace(REFUSED, injected=(b"GET / HTTP/1.1\r\n\r\n",)),
        dataclasses.replace(REFUSED, tunnelled=(b"x",)),
    ],
)
def test_each_part_in_which_one_way_differs_is_found(other: Seen) -> None:
    seen = dict.fromkeys(Way, REFUSED)
    assert difference(seen) is None
    assert str(Way.KEPT) in (difference({**seen, Way.KEPT: other}) or "")


@pytest.mark.parametrize(
    "seen",
    [
        dataclasses.replace(REFUSED, lines=("allow GET",)),
        dataclasses.replace(REFUSED, lines=("allow GET", "end GET", "end GET")),
        dataclasses.replace(REFUSED, faults=("KeyError in tunnel.py",)),
    ],
)
def test_what_no_way_may_come_to_is_found_although_all_agree(seen: Seen) -> None:
    assert difference(dict.fromkeys(Way, seen)) is not None


def test_an_input_is_shortened_to_what_its_kind_needs() -> None:
    assert shortened(b"GET /long/way HTTP/1.1", lambda data: "kind" if b"/w" in data else None) == b"/w"
