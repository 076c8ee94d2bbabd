"""The medians as one SVG: a panel for each kind of work, a dot for each peer, on a logarithmic axis. Pure.

A dot and no bar, for the axis has no nought: what one spends is often a hundred times the other's. By hand,
for a plotting library would be the largest thing here. Next: publish.py (where it goes).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tests.benchmarks.network.peers import NO_PROXY, OURS
from tests.benchmarks.network.samples import Medians
from tests.benchmarks.network.tables import number

PANEL_WIDTH, LINE, TOP, LEFT, RIGHT = 430, 22, 58, 96, 64
COLUMNS = 2

STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #57606a }
.title { font-weight: 600; fill: #1f2328 }
.ours { font-weight: 600; fill: #0a5bc4 }
circle { fill: #8c959f } circle.ours { fill: #0a5bc4 }
line { stroke: #d0d7de } .whole { fill: #ffffff }
@media (prefers-color-scheme: dark) {
  text { fill: #9198a1 } .title { fill: #f0f6fc } .ours { fill: #6cb2ff }
  circle { fill: #6e7681 } circle.ours { fill: #6cb2ff }
  line { stroke: #3d444d } .whole { fill: #0d1117 }
}"""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    case: str
    figure: str


PANELS = (
    Panel("Set-up: CPU µs per CONNECT, 64 in flight", "A64", "cpu_us"),
    Panel("Bulk: CPU s per GB, 16 downloads", "Bdown16", "cpu_s_per_gb"),
    Panel("Tokens: CPU µs per round trip, 64 tunnels", "C64", "cpu_us"),
    Panel("Idle: KiB per tunnel, 5,000 open", "D5000", "kib"),
    Panel("Credential: CPU µs per request, 16 clients", "E16", "cpu_us"),
    Panel("Beside 32 downloads: round trip p50, ms", "F32", "p50_ms"),
)


@dataclass(frozen=True, slots=True)
class Axis:
    """From one power of ten to another, over ``width`` pixels."""

    low: int
    high: int
    width: float

    def x(self, value: float) -> float:
        return (math.log10(value) - self.low) / (self.high - self.low) * self.width

    def ticks(self) -> list[tuple[float, str]]:
        return [(self.x(10.0**power), f"{10.0**power:g}") for power in range(self.low, self.high + 1)]


def axis(values: Sequence[float], width: float) -> Axis:
    low = math.floor(math.log10(min(values)))
    return Axis(low, max(low + 1, math.ceil(math.log10(max(values)))), width)


def dots(panel: Panel, medians: Medians) -> list[tuple[str, float]]:
    """Peer and value, the least first. A logarithm takes no nought, and no proxy spends nothing."""
    found = [(peer, medians.get(peer, panel.case, panel.figure)) for peer in medians.peers(panel.case)]
    return sorted(
        ((peer, value) for peer, value in found if value and value > 0 and peer != NO_PROXY),
        key=lambda dot: dot[1],
    )


def svg(medians: Medians, about: str) -> str:
    caption = f"Less is better; the axes are logarithmic. {about}"
    shown = [(panel, found) for panel in PANELS if (found := dots(panel, medians))]
    rows = [shown[at : at + COLUMNS] for at in range(0, len(shown), COLUMNS)]
    parts: list[str] = []
    y = 0.0
    for row in rows:
        for column, (panel, found) in enumerate(row):
            parts.append(f'<g transform="translate({column * PANEL_WIDTH} {y:g})">')
            parts += [*_panel(panel, found), "</g>"]
        y += TOP + LINE * max(len(found) for _, found in row) + 16
    width, height = PANEL_WIDTH * COLUMNS, y + 28
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" role="img">',
            f"<title>{escape(caption)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="whole" width="{width}" height="{height:g}"/>',
            *parts,
            f'<text x="12" y="{height - 10:g}">{escape(caption)}</text>',
            "</svg>\n",
        )
    )


def _panel(panel: Panel, found: Sequence[tuple[str, float]]) -> Iterator[str]:
    scale = axis([value for _, value in found], PANEL_WIDTH - LEFT - RIGHT)
    bottom = TOP + LINE * len(found) - 8
    yield f'<text class="title" x="12" y="20">{escape(panel.title)}</text>'
    for x, label in scale.ticks():
        yield f'<line x1="{LEFT + x:.1f}" x2="{LEFT + x:.1f}" y1="{TOP - 14}" y2="{bottom}"/>'
        yield f'<text x="{LEFT + x:.1f}" y="{TOP - 20}" text-anchor="middle">{label}</text>'
    for row, (peer, value) in enumerate(found):
        y = TOP + LINE * row
        kind = ' class="ours"' if peer == OURS else ""
        x = LEFT + scale.x(value)
        yield f'<text{kind} x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(peer)}</text>'
        yield f'<circle{kind} cx="{x:.1f}" cy="{y}" r="5"/>'
        yield f'<text{kind} x="{x + 10:.1f}" y="{y + 4}">{number(value)}</text>'
