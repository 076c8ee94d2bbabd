"""Commands of an editor or a prompt (vi, ed, less, gdb, psql): which of them give a text to a shell.

Next: foreign.py (calls in them), wrappers.py (where such commands stand).
"""

import re
from collections.abc import Iterator

from egress_proxy.safety.make_rules import MAX_LINES

# Nothing is given back: many blanks would be tried in each way that they can be parted.
_BANG = re.compile(
    r"[\s:+\\]*+(?:(?:silent|sil|keepjumps|noautocmd|exe|execute|norm|normal|call|shell)!?[\s:\"']++)*+"
    r"(?:%|[\d.$,'+-]++)?\s*+(?:r|read|w|write)?\s*+!(.+)",
    re.DOTALL,
)
_TERMINAL = re.compile(r"[\s:+]*(?:te|term|terminal|shell|system|sh)\s+(.+)", re.DOTALL)
_QUOTED = re.compile(r"[\s:+]*(?:silent!?\s+)?exe(?:cute)?\s")


def bang_texts(text: str) -> Iterator[str]:
    for line in text.split("\n")[:MAX_LINES]:
        found = _BANG.match(line) or _TERMINAL.match(line)
        if found:
            yield found[1].rstrip("\"'") if _QUOTED.match(line) else found[1]
