"""What comes out of reading a line: its commands, what was left behind, and why reading stopped.

The limits of reading are here. Next: shell.py and windows.py (fill it), classify.py (judges it).
"""

import enum
from dataclasses import dataclass, field

from egress_proxy.safety.values import Command, Memory, Word

# A command may be wrapped this often, a text be given to a shell in a text this often.
MAX_LEVELS = 12
MAX_TEXT_LEVELS = 5
MAX_INNER_TEXT = 32 * 1024  # characters, all such texts together
# Not counting those that are there already: 600 take about 40 ms, 32 KiB of scripts have fewer.
MAX_COMMANDS = 500
_VISITS_OF_CODE = 10


class Limit(enum.StrEnum):
    """Why a line was not read to its end."""

    BROKEN = "not_parsed"
    UNPARSED = "too_costly"
    DEEP = "too_deep"
    MANY = "too_many"


@dataclass(slots=True)
class Reading:
    """What a line was found to hold. ``commands`` in order, each once; ``supposed``: see suppositions.py."""

    commands: dict[Command, None] = field(default_factory=dict)
    supposed: dict[Command, None] = field(default_factory=dict)
    limits: set[Limit] = field(default_factory=set)
    memory: Memory = field(default_factory=Memory)
    functions: dict[str, str] = field(default_factory=dict)
    is_supposing: bool = False
    executed: int = 0
    text_length: int = 0

    @property
    def is_full(self) -> bool:
        return self.executed > MAX_COMMANDS or self.memory.is_spent

    def has_room(self) -> bool:
        """For one more node of the tree."""
        self.memory.visited += 1
        if self.is_full:
            self.limits.add(Limit.MANY)
        return not self.is_full

    def takes(self, text: str, language: str) -> bool:
        """One more text in the line. In another language, reading it costs as much as some nodes do."""
        self.text_length += len(text)
        self.memory.visited += 0 if language == "sh" else _VISITS_OF_CODE + len(text) // 16
        return self.text_length <= MAX_INNER_TEXT and not self.is_full

    def has_room_for(self, words: int) -> bool:
        """Long commands count for several."""
        self.executed += 1 + words // 16
        if self.is_full:
            self.limits.add(Limit.MANY)
        return not self.is_full

    def define(self, name: str, body: str) -> None:
        """A function; one that starts itself twice in the background is the fork bomb."""
        self.functions[name] = body
        is_bomb = f"{name}|{name}&" in "".join(body.split())
        self.note(Command((Word(f"{name}()"),), ("fork bomb" if is_bomb else "defines",)))

    def note(self, command: Command) -> None:
        (self.supposed if self.is_supposing else self.commands)[command] = None
