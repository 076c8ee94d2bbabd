"""The plot is well-formed, shows every peer once a panel, and puts a value where the axis says it is."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest

from tests.benchmarks.network.peers import NO_PROXY, OURS
from tests.benchmarks.network.plot import axis, svg
from tests.benchmarks.network.samples import Medians, Sample
from tests.benchmarks.network.tables import number

SVG = "{http://www.w3.org/2000/svg}"
PEERS = (NO_PROXY, OURS, "squid", "smoke & screen")


def drawn(samples: Sequence[Sample], about: str = "<when> & where") -> ET.Element:
    return ET.fromstring(svg(Medians(samples), about))  # noqa: S314 - our own text


def set_up_samples() -> list[Sample]:
    return [Sample(1, peer, "A64", {"cpu_us": 90.0 * at}) for at, peer in enumerate(PEERS)]


def test_each_peer_but_no_proxy_has_a_dot_and_its_value() -> None:
    root = drawn(set_up_samples())
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert len(list(root.iter(f"{SVG}circle"))) == 3
    assert {OURS, "squid", "smoke & screen", "90.0", "180", "270"} <= set(texts)
    assert NO_PROXY not in texts


def test_ours_stands_out_once() -> None:
    circles = drawn(set_up_samples()).iter(f"{SVG}circle")
    assert [circle.get("class") for circle in circles] == ["ours", None, None]


def test_the_caption_is_text_whatever_is_in_it() -> None:
    title = drawn(set_up_samples()).findtext(f"{SVG}title")
    assert title == "Less is better; the axes are logarithmic. <when> & where"


def test_without_samples_there_is_a_picture_without_panels() -> None:
    assert list(drawn([]).iter(f"{SVG}circle")) == []


def test_the_axis_runs_between_powers_of_ten() -> None:
    scale = axis([0.3, 250.0], 400)
    assert [label for _, label in scale.ticks()] == ["0.1", "1", "10", "100", "1000"]
    assert (scale.x(0.1), scale.x(1000)) == (0, 400)
    assert scale.x(10) == pytest.approx(200)


def test_one_value_has_an_axis_too() -> None:
    assert [label for _, label in axis([10.0], 400).ticks()] == ["10", "100"]


@pytest.mark.parametrize(
    ("value", "shown"), [(0.28, "0.28"), (5.0, "5.00"), (12.34, "12.3"), (39549.0, "39,549")]
)
def test_a_value_is_shown_with_the_digits_that_count(value: float, shown: str) -> None:
    assert number(value) == shown
