"""The fuzz targets over their committed seeds, and over every seed with one byte changed, cut or doubled.

Searching for new input is python -m tests.fuzz; whatever it finds becomes a seed.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, Broken, hold

SEEDS = Path(__file__).with_name("seeds")
FILES = sorted(SEEDS.glob("*/*/*"))
# Bytes that have split other parsers.
NASTY = b'\x00\t\n\r "#%*,./:;?@[\\]_-0Aa\x7f\x80\xad\xff'


def of(target: str, verdict: str) -> list[Path]:
    return [file for file in FILES if file.parts[-3:-1] == (target, verdict)]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_seeds_of_both_kinds(target: str) -> None:
    assert {file.parts[-3] for file in FILES} == TARGETS.keys()
    assert len(of(target, "taken")) >= 5
    assert len(of(target, "refused")) >= 10


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-3:]))
def test_a_seed_is_taken_or_refused_as_its_folder_says(file: Path) -> None:
    target, verdict = file.parts[-3:-1]
    assert TARGETS[target](file.read_bytes()) is (verdict == "taken")


def changed(seed: bytes) -> Iterator[bytes]:
    for place in range(len(seed)):
        yield seed[:place]
        yield seed[:place] + seed[place + 1 :]
        yield seed[: place + 1] + seed[place:]
        for byte in NASTY:
            yield seed[:place] + bytes([byte]) + seed[place + 1 :]
            yield seed[:place] + bytes([byte]) + seed[place:]


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.stat().st_size < 200], ids=lambda file: file.stem
)
def test_a_changed_seed_breaks_nothing(file: Path) -> None:
    target = TARGETS[file.parts[-3]]
    verdicts = {target(data) for data in changed(file.read_bytes())}
    assert verdicts <= {True, False}


def test_a_broken_promise_stops_the_search() -> None:
    with pytest.raises(Broken, match="hunter2"):
        hold(False, b"hunter2")
