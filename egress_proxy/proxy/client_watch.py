"""Whether a client that waits for its answer is still there: it may leave, and the upstream be silent.

Nothing is read here and nothing is ended. Next: exchange.py (who waits and who cuts).
"""

import asyncio
import socket

# A client that ended its direction has left, as a rule, but may be waiting (`nc`): it gets an answer that
# comes at once. nginx and Envoy do not wait at all; a generated answer costs money until it is cut.
CLIENT_LEFT_S = 2.0


class ClientWatch:
    """Tells when a client that waits for its answer has left; nothing is taken from its socket.

    Start it when nobody reads from the client. ``wait``: what to cut short then.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self.has_left = False
        self.wait: asyncio.Timeout | None = None

    def start(self) -> None:
        self._loop.add_reader(self._sock, self._look)

    def stop(self) -> None:
        self._loop.remove_reader(self._sock)

    def _look(self) -> None:
        grace_s = CLIENT_LEFT_S
        try:
            self.has_left = not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            self.has_left, grace_s = True, 0.0
        self.stop()  # also when the next request is there: who sends it is there, too
        if self.has_left and self.wait is not None:
            self.wait.reschedule(self._loop.time() + grace_s)
