"""The one assertion of a battery: exactly the accepted attempts got out, and what must work works.

Next: accepted.py (which, and why), places.py (runs it).
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.end_to_end.escape.accepted import MAY_BE_MISSING, NOT_REPORTED
from tests.end_to_end.escape.battery import BATTERY
from tests.end_to_end.escape.bench import SILENT
from tests.end_to_end.escape.places import Verdicts

# Fewer would mean that a part was not loaded.
ALL = 254


def assert_exactly(verdicts: Verdicts, accepted: Mapping[str, str], broken: Mapping[str, str]) -> None:
    """All of the battery was run; the sets are equal and not only small."""
    assert len(BATTERY) == ALL
    assert verdicts.of.keys() == BATTERY.keys()
    assert_same(verdicts["broken"], broken)
    assert_same(verdicts["escaped"], accepted)
    silent = {name for name, detail in verdicts["escaped"].items() if detail.endswith(SILENT)}
    assert silent == NOT_REPORTED
    assert verdicts["skipped"].keys() <= MAY_BE_MISSING, verdicts["skipped"]


def assert_same(found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Fails with what is in one of them alone, and what is known of it."""
    unexpected = {name: f"unexpected: {found[name]}" for name in found.keys() - expected.keys()}
    gone = dict.fromkeys(expected.keys() - found.keys(), "accepted, but it does not happen")
    assert not unexpected | gone, unexpected | gone
