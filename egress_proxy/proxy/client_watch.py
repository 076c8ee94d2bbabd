"""Whether a client that waits for its answer is still there: it may leave, and the upstream be silent.

Nothing is taken from its socket and nothing is ended. Next: exchange.py (who waits and who cuts).
"""

import enum
import socket

# A client that ended its direction has left, as a rule, but may be waiting (`nc`): it gets an answer that
# comes at once. nginx and Envoy do not wait at all; a generated answer costs money until it is cut.
CLIENT_LEFT_S = 2.0


class Presence(enum.Enum):
    """What a socket that has become readable tells of its client."""

    QUIET = enum.auto()  # nothing: it was told of for no reason
    AHEAD = enum.auto()  # its next request is there already
    LEFT = enum.auto()  # it has ended its direction, or closed
    RESET = enum.auto()


def presence(client: socket.socket) -> Presence:
    """Look, and take nothing."""
    try:
        return Presence.AHEAD if client.recv(1, socket.MSG_PEEK) else Presence.LEFT
    except BlockingIOError:
        return Presence.QUIET
    except OSError:
        return Presence.RESET
