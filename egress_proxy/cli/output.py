"""How verbs speak: data to stdout, messages to stderr, one line each, nothing that moves a cursor.

Next: main.py (errors), check.py, grants in control_verbs.py (data).
"""

import contextlib
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pydantic takes longer to import than `env` to run
    from pydantic import BaseModel


def say(line: str) -> None:
    """A message for a person. A closed stderr is no reason to fail."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(shown(line), file=sys.stderr, flush=True)


def shown(text: str) -> str:
    """Printable as it is, anything else escaped: names and reasons may come from strangers."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def print_json(answer: "BaseModel", *, sparse: bool = False) -> None:
    """``sparse``: without what is null."""
    print(json.dumps(answer.model_dump(mode="json", exclude_none=sparse), indent=2))
