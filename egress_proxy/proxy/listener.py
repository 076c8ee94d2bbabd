"""Accepts connections, bounds how many there are, and lets them end in order when the service stops.

A fault inside a connection is caught here, logged once, and ends that connection alone. Next: connection.py.
"""

import asyncio
import contextlib
import errno
import functools
import os
import resource
import socket
from collections.abc import Callable

from egress_proxy.core.access import Access, Client
from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.events import Decided, EndCause
from egress_proxy.core.reply import refuse
from egress_proxy.core.request import RequestHead
from egress_proxy.core.seams import Audit, AuditUnavailable
from egress_proxy.proxy.connection import After, Connection
from egress_proxy.proxy.exchange import Exchange
from egress_proxy.proxy.faults import fault_event
from egress_proxy.proxy.kept import KeptClients, Start, Work
from egress_proxy.proxy.peer import Peer, is_own_user, owner_of, peer_of
from egress_proxy.proxy.pipes import pipe_limit
from egress_proxy.proxy.places import Places
from egress_proxy.proxy.socket_options import TCP_KEEPALIVE_S, prepare, prepare_accepted
from egress_proxy.proxy.stream import SocketStream
from egress_proxy.proxy.tcp_owner import is_in_own_network, peer_uid
from egress_proxy.proxy.unix_socket import BACKLOG, ListenError

# Accepted in one go before the others have their turn.
ACCEPT_BATCH = 64
# Kept free for files, lookups, the control API and pooled upstreams.
RESERVED_DESCRIPTORS = 96
# After the kernel had no descriptor for us: the listener rests so long, instead of spinning.
ACCEPT_PAUSE_S = 0.2
_OUT_OF_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def listen_tcp(host: str, port: int) -> socket.socket:
    """A listening socket on an address; port 0 picks a free one. Raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ListenError(f"cannot listen on {host}:{port}: {(error.strerror or '').lower()}") from None
    sock.setblocking(False)
    return sock


def connection_limit() -> int:
    """How many clients the descriptor limit allows: each may need one for itself and one upstream."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(8, (soft - RESERVED_DESCRIPTORS - 2 * pipe_limit()) // 2)


ServeConnection = Callable[[SocketStream, Peer], Connection]
IsUnwanted = Callable[[Exchange, Access, Peer], bool]
Admit = Callable[[socket.socket, object], None]
"""Takes over an accepted socket; the address is what accept() gave."""


class Intake:
    """All connections of all listeners. `async with` its group by `run`; `drain` ends them in order."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        make: ServeConnection,
        make_kept: Callable[[Start], KeptClients],
        audit: Audit,
        others_open: Callable[[], int],
        places: Places,
        keepalive_s: int = TCP_KEEPALIVE_S,
    ) -> None:
        """``others_open``: how many clients are elsewhere, in tunnels or in arrivals.py."""
        self._places = places
        self._keepalive_s = keepalive_s
        self._loop = asyncio.get_running_loop()
        self._group = group
        self._make = make
        self._kept = make_kept(self._start)
        self._audit = audit
        self._others_open = others_open
        self._limit = connection_limit()
        self._listeners: dict[socket.socket, Admit] = {}
        self._running: dict[asyncio.Task[None], Connection] = {}
        self.newcomer: Callable[[socket.socket, Peer], None] = self.serve_socket
        self.drop_newcomer: Callable[[], bool] = lambda: False

    def listen(self, listener: socket.socket, admit: Admit | None = None, *, same_user: bool = False) -> None:
        """Accept on a listener from now on. ``admit``: for those who are no clients of the data port.
        ``same_user``: only connections of our own user's processes on this machine."""
        prepare(listener, self._keepalive_s)  # which those hand down that it accepts
        takes = admit or self._admit
        self._listeners[listener] = functools.partial(self._admit_own, takes) if same_user else takes
        self._loop.add_reader(listener, self._accept, listener)

    def listen_for(self, sandbox: Client, listener: socket.socket) -> None:
        """Whoever comes in there is this client, and needs no token."""
        admit = functools.partial(self._admit, sandbox=sandbox)
        # Without a network namespace it is on the host's loopback, where every user can connect.
        self.listen(listener, admit, same_user=is_in_own_network(listener))

    def stop_listening(self, listener: socket.socket) -> None:
        if self._listeners.pop(listener, None) is not None:
            self._loop.remove_reader(listener)
            listener.close()

    def stop_accepting(self) -> None:
        for listener in list(self._listeners):
            self.stop_listening(listener)

    def end_client(self, sandbox: Client) -> None:
        """End the connections that came in by a sandbox's own listener."""
        self._end_where(lambda connection: connection.peer.sandbox == sandbox, EndCause.SANDBOX_ENDED)

    def end_idle(self) -> int:
        """End the connections that serve no request just now; how many are left."""
        self._end_where(lambda connection: not connection.is_busy, EndCause.DRAINED)
        return len(self._kept) + sum(connection.is_busy for connection in self._running.values())

    def end_all(self) -> None:
        self._end_where(lambda _: True, EndCause.DRAINED)

    def end_unwanted(self, is_unwanted: IsUnwanted) -> int:
        """End the injected requests under way that are not allowed any more; how many there were."""

        def chosen(connection: Connection) -> bool:
            exchange, unended = connection.exchange, connection.unended
            if exchange is None or unended is None:
                return False  # what still waits for its upstream is judged again when that is there
            return is_unwanted(exchange, unended[0].access, connection.peer)

        return self._end_where(chosen, EndCause.POLICY_CHANGED)

    def _end_where(self, chosen: Callable[[Connection], bool], cause: EndCause) -> int:
        count = self._kept.end_where(chosen, cause)
        for task, connection in list(self._running.items()):
            if not chosen(connection):
                continue
            count += 1
            connection.ended_by = cause
            if connection.exchange is not None:
                connection.exchange.cut(cause)  # its task writes that down, and ends
            else:
                task.cancel()
        return count

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_ROOM:
                    self._rest(listener)
                return
            self._listeners[listener](sock, address)

    def _rest(self, listener: socket.socket) -> None:
        self._loop.remove_reader(listener)
        self._loop.call_later(ACCEPT_PAUSE_S, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def _admit(self, sock: socket.socket, address: object, sandbox: Client | None = None) -> None:
        is_tcp = isinstance(address, tuple)  # `sock.family` makes an enum of it, as slow as a system call
        if not is_tcp and not is_own_user(owner_of(sock)):
            sock.close()
            return
        try:
            prepare_accepted(sock, self._keepalive_s)
        except OSError:  # reset before we looked
            sock.close()
            return
        open_count = len(self._running) + len(self._kept) + self._others_open()
        # Half heads are bounded by the same number as what is under way: each may hold 16 KiB.
        is_full = open_count >= self._limit or open_count - len(self._places) >= self._places.waiting_limit
        if is_full and not self._make_way():
            _turn_away(sock, Deny(Reason.TOO_MANY_TUNNELS))
            return
        self.newcomer(sock, peer_of(address, sandbox))

    def _make_way(self) -> bool:
        """Whoever came first and says nothing goes, so that silence cannot shut others out.

        In this order: connections without a word, with half a head, between two requests.
        """
        if self.drop_newcomer():
            return True
        for task, connection in self._running.items():
            if not connection.is_busy and not task.cancelling():
                task.cancel()
                return True
        return self._kept.drop_oldest_idle()

    def _admit_own(self, admit: Admit, sock: socket.socket, address: object) -> None:
        uid = peer_uid(sock) if isinstance(address, tuple) else os.geteuid()  # of a unix socket `admit` asks
        if uid == os.geteuid():
            admit(sock, address)
            return
        whose = "no process of this machine's has it" if uid is None else f"it is of user {uid}"
        detail = f"{whose}, and this port takes connections of its own user alone"
        sock.setblocking(False)
        _turn_away(sock, Deny(Reason.CLIENT_UNKNOWN, detail=detail))
        peer, reason = peer_of(address).address, Reason.CLIENT_UNKNOWN
        with contextlib.suppress(AuditUnavailable):
            self._audit(Decided("", Client(), peer, None, None, None, 407, reason, detail=detail))

    def serve_socket(self, sock: socket.socket, peer: Peer) -> None:
        self.serve(SocketStream(self._loop, sock), peer)

    def serve(self, stream: SocketStream, peer: Peer, head_due_at: float | None = None) -> None:
        """Serve a client in a task of its own. ``head_due_at``: the loop's clock, where it runs already."""
        connection = self._make(stream, peer)
        connection.head_due_at = head_due_at
        self._start(connection, connection.serve)

    def refuse_dial(
        self, stream: SocketStream, peer: Peer, head: RequestHead, access: Access, deny: Deny, request_id: str
    ) -> None:
        """Tell a client that its request came to nothing, in a task of its own."""
        connection = self._make(stream, peer)
        work = functools.partial(connection.refuse_dial, head, access, deny, request_id)
        self._start(connection, work)

    def _start(self, connection: Connection, work: Work) -> None:
        task = self._group.create_task(self._serve(connection, work))
        self._running[task] = connection
        task.add_done_callback(self._gone)

    def _gone(self, task: asyncio.Task[None]) -> None:
        connection = self._running.pop(task)
        if task.cancelled():
            connection.give_up()  # perhaps before its first step: then it has closed nothing itself

    async def _serve(self, connection: Connection, work: Work) -> None:
        """One of the outermost loops: what goes wrong inside ends this connection and no other."""
        try:
            if await work() is After.KEPT:
                self._kept.keep(connection)
        except Exception as error:
            connection.stream.abort()
            connection.end()
            with contextlib.suppress(AuditUnavailable):
                self._audit(fault_event(connection.request_id, error))


def _turn_away(sock: socket.socket, deny: Deny) -> None:
    """Answer without waiting for a request: there is no descriptor to serve it with, or no wish to."""
    reply = refuse(deny, "")
    with contextlib.suppress(OSError):
        sock.send(reply.head + reply.body)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(65_536)  # unread bytes would turn the close into a reset that overtakes the answer
    sock.close()
