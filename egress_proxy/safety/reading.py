"""What comes out of reading a line: its commands, what was left behind, and why reading stopped.

The limits of reading are here. Next: shell.py and windows.py (fill it), classify.py (judges it).
"""

import enum
from dataclasses import dataclass, field

from egress_proxy.safety.values import Command, Memory

# A command may be wrapped this often, a text be given to a shell in a text this often.
MAX_LEVELS = 12
MAX_TEXT_LEVELS = 5
MAX_INNER_TEXT = 32 * 1024  # characters, all such texts together
# Not counting those that are there already: 600 take about 40 ms, 32 KiB of scripts have fewer.
MAX_COMMANDS = 500


class Limit(enum.StrEnum):
    """Why a line was not read to its end."""

    BROKEN = "not_parsed"
    UNPARSED = "too_costly"
    DEEP = "too_deep"
    MANY = "too_many"


@dataclass(slots=True)
class Reading:
    """What a line was found to hold. ``commands`` in order, each once."""

    commands: dict[Command, None] = field(default_factory=dict)
    limits: set[Limit] = field(default_factory=set)
    memory: Memory = field(default_factory=Memory)
    functions: dict[str, str] = field(default_factory=dict)
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

    def has_room_for(self, words: int) -> bool:
        """Long commands count for several."""
        self.executed += 1 + words // 16
        if self.is_full:
            self.limits.add(Limit.MANY)
        return not self.is_full

    def note(self, command: Command) -> None:
        self.commands[command] = None
