"""What a verb ends with, in numbers that scripts rely on, and the errors that carry one.

Next: main.py (turns errors into one line and a code).
"""

import enum


class ExitCode(enum.IntEnum):
    """What scripts rely on; the README lists them."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    REFUSED = 3
    TOKEN = 4
    INTERRUPTED = 130  # as shells show SIGINT
    BROKEN_PIPE = 141  # as shells show SIGPIPE


class VerbFailed(Exception):
    """The verb ends here. The message is one line, safe to show, and says what to do next."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code
