"""Whether a client that waits for its answer is still there: it may leave, and the upstream be silent.

Nothing is read here and nothing is ended. Next: exchange.py (who waits and who cuts).
"""

import socket

from egress_proxy.proxy.stream import SocketStream, Stream

# A client that ended its direction has left, as a rule, but may be waiting (`nc`): it gets an answer that
# comes at once. nginx and Envoy do not wait at all; a generated answer costs money until it is cut.
CLIENT_LEFT_S = 2.0


class ClientWatch:
    """Tells when a client that waits for its answer has left; nothing is taken from its socket.

    Start it when nobody reads from the client. Waiting for ``upstream`` is cut short then.
    """

    __slots__ = ("_client", "_upstream", "has_left")

    def __init__(self, client: SocketStream, upstream: Stream) -> None:
        self._client = client
        self._upstream = upstream
        self.has_left = False

    def start(self) -> None:
        self._client.look_on(self._look)

    def stop(self) -> None:
        self._client.look_on(None)

    def _look(self) -> None:
        grace_s = CLIENT_LEFT_S
        try:
            self.has_left = not self._client.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            self.has_left, grace_s = True, 0.0
        self.stop()  # also when the next request is there: who sends it is there, too
        if self.has_left:
            self._upstream.limit_wait(grace_s)
