"""The accepted list as the README prints it, so that what is said to users is what the tests hold.

    python -m tests.end_to_end.escape.printed

prints what belongs between the marks. Next: accepted.py (the list), test_printed.py (compares).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.end_to_end.escape.accepted import (
    BROKEN_EVERYWHERE,
    BROKEN_ON_ABI_1,
    BROKEN_ON_LANDLOCK,
    BROKEN_WITHOUT_SUPERVISOR,
    EVERYWHERE,
    FROM_OURS,
    LANDLOCK,
    LANDLOCK_OLDER,
    LANDLOCK_ORDINARY,
    Reasons,
)

MARKS = ("<!-- escapes -->\n", "<!-- end of escapes -->")


def printed() -> str:
    own = {name: reason for name, reason in LANDLOCK.items() if name not in EVERYWHERE}
    parts: Mapping[str, Reasons] = {
        "every rung": EVERYWHERE,
        "spawned by a process of ours": FROM_OURS,
        "Landlock": own,
        "Landlock, as an ordinary user": LANDLOCK_ORDINARY,
        **{f"Landlock, ABI below {abi}": reasons for abi, reasons in LANDLOCK_OLDER.items()},
        "every rung, broken for everyday work": BROKEN_EVERYWHERE,
        "Landlock, broken for everyday work": BROKEN_ON_LANDLOCK,
        "Landlock without network, broken for everyday work": BROKEN_WITHOUT_SUPERVISOR,
        "Landlock, ABI 1, broken for everyday work": BROKEN_ON_ABI_1,
    }
    lines = ["| where | attempts of the battery that succeed | why they are left |", "|---|---|---|"]
    for where, reasons in parts.items():
        lines += _rows(where, reasons)
    return "\n".join(lines) + "\n"


def _rows(where: str, reasons: Reasons) -> Iterator[str]:
    for reason in dict.fromkeys(reasons.values()):
        names = ", ".join(f"`{name}`" for name, why in reasons.items() if why == reason)
        yield f"| {where} | {names} | {reason} |"


if __name__ == "__main__":
    print(printed(), end="")
