"""The data port composed from the product's own parts, without the command line, in a thread of its own.

The one file of this folder that knows the product's code: tests choose rules, limits and clock, and see
every event. Blocking sockets talk to it as any client does; `call` runs something on its event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import selectors
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from egress_proxy.core.access import Client, InjectRoute
from egress_proxy.core.events import EndCause, Event, Faulted
from egress_proxy.core.grants import Limits
from egress_proxy.core.host import Target, parse_authority
from egress_proxy.core.policy import OnMiss, Policy, rule_index
from egress_proxy.core.rules import Ports, Rule, Suffix, parse_rule
from egress_proxy.core.seams import Asker
from egress_proxy.core.sni_policy import SniPolicy
from egress_proxy.proxy.arrivals import Arrivals
from egress_proxy.proxy.attach_socket import listen_attach
from egress_proxy.proxy.attachments import Attachments
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.proxy.connection import Connection
from egress_proxy.proxy.epoll_readiness import EpollReadiness
from egress_proxy.proxy.forward import Forwarder
from egress_proxy.proxy.grant_store import MemoryGrantStore
from egress_proxy.proxy.hosts_file import HostsFile
from egress_proxy.proxy.kept import KeptClients, Start
from egress_proxy.proxy.listener import Intake, listen_tcp
from egress_proxy.proxy.name_cache import NameCache
from egress_proxy.proxy.order import ForwardLimits
from egress_proxy.proxy.outbound import Outbound
from egress_proxy.proxy.parts import ConnectionLimits, InForce, Parts
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.pipes import PipePool
from egress_proxy.proxy.readiness import LoopReadiness
from egress_proxy.proxy.recorder import Recorder
from egress_proxy.proxy.resolver import DnsLookup, NameServer
from egress_proxy.proxy.sandbox_ledger import SandboxLedgers
from egress_proxy.proxy.stream import SocketStream
from egress_proxy.proxy.tunnel_table import TunnelLimits, TunnelTable
from egress_proxy.proxy.upstream_pool import UpstreamPool
from egress_proxy.vault.injection import Credential
from egress_proxy.vault.sources import open_source, parse_source
from tests.support.byte_stream import End, connect, read_until_end
from tests.support.deadline import DEFAULT_S, wait_for
from tests.support.http import Head, Response, exchange, read_head
from tests.support.service_answers import connect_request

AnyEvent = TypeVar("AnyEvent", bound=Event)
Result = TypeVar("Result")

# What the settings have as defaults (contract 8), but for what a test would wait for.
TUNNELS = TunnelLimits(in_all=4096, per_client=1024, idle_s=3600, half_close_s=60, hello_s=10)
CONNECTIONS = ConnectionLimits(head_bytes=16_384, head_s=10, keep_alive_s=75)
FORWARDING = ForwardLimits(first_byte_s=600, idle_s=3600, body_s=60)


class Clock:
    """The time of day as grants see it; it stands still until a test moves it."""

    def __init__(self, at: float = 1_800_000_000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


class EventLog:
    """An audit sink that keeps what it is told. Tests may replace ``refusing`` to let a write fail."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.refusing: Callable[[Event], None] = lambda event: None
        self.sandboxes = SandboxLedgers()  # hear of events as they do in the service
        self._events: list[Event] = []

    def __call__(self, *events: Event) -> None:
        for event in events:
            self.refusing(event)
        with self.changed:
            self._events.extend(events)
            self.changed.notify_all()
        self.sandboxes.note(events)

    @property
    def all(self) -> list[Event]:
        with self.changed:
            return list(self._events)

    def of(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        return [event for event in self.all if isinstance(event, kind)]

    def wait_for(self, kind: type[AnyEvent], n: int = 1, timeout_s: float = DEFAULT_S) -> list[AnyEvent]:
        """Wait until there are at least ``n`` events of this kind; all of them."""
        what = f"{n} events {kind.__name__}"
        wait_for(self.changed, lambda: sum(isinstance(e, kind) for e in self._events) >= n, timeout_s, what)
        return self.of(kind)

    def only(self, kind: type[AnyEvent], timeout_s: float = DEFAULT_S) -> AnyEvent:
        """The one event of this kind; waits for it."""
        found = self.wait_for(kind, 1, timeout_s)
        if len(found) != 1:
            raise AssertionError(f"expected one {kind.__name__}, saw {found}")
        return found[0]


def entry(text: str, *, private: bool = False, client: str | None = None) -> Rule:
    """An allow entry. No public-suffix list: tests of wildcards that are too broad are elsewhere."""
    return parse_rule(text, lambda _: Suffix.NONE, private=private, client=client)


def deny_entry(text: str) -> Rule:
    return parse_rule(text, lambda _: Suffix.NONE, bare_ports=Ports.ANY)


def credential(secret: str, header: str = "Authorization", form: str = "Bearer {secret}") -> Credential:
    return Credential(header.encode(), form, open_source(parse_source("env:KEY"), {"KEY": secret}))


@dataclass(slots=True)
class Setup:
    """What the port is made of. ``credentials`` by the names of ``routes``; ``resolver``: its address."""

    allow: Sequence[str] = ()
    private: Sequence[str] = ()
    deny: Sequence[str] = ()
    routes: Sequence[InjectRoute] = ()
    credentials: dict[str, Credential] = field(default_factory=dict)
    clients: ClientTokens = field(default_factory=ClientTokens)
    resolver: str | None = None
    trust: Callable[[], ssl.SSLContext] = ssl.create_default_context
    on_miss: OnMiss = OnMiss.DENY
    sni: SniPolicy = field(default_factory=SniPolicy)
    tunnels: TunnelLimits = TUNNELS
    connections: ConnectionLimits = CONNECTIONS
    forwarding: ForwardLimits = FORWARDING
    connect_timeout_s: float = 10.0
    relay: str = "loop"  # or "epoll", where the common CONNECT needs no task
    asker: Asker | None = None
    recorder: Recorder | None = None
    attach: Path | None = None  # where sandboxes attach

    def policy(self) -> Policy:
        allowed = [*map(entry, self.allow), *(entry(text, private=True) for text in self.private)]
        denied = rule_index([deny_entry(text) for text in self.deny])
        return Policy(rule_index(allowed), denied, tuple(self.routes), self.on_miss, self.sni)


class DataPort:
    """``with DataPort(allow=["127.0.0.1:*"]) as port``; keywords are those of ``Setup``.

    A fault that nobody expected (an error reported to the loop, a task or a connection left over) fails
    the block at its end. ``expect_faults``: the test is about faults inside connections.
    """

    port: int
    loop: asyncio.AbstractEventLoop
    parts: Parts
    intake: Intake
    table: TunnelTable
    pool: UpstreamPool
    grants: MemoryGrantStore

    def __init__(self, *, expect_faults: bool = False, **options: Any) -> None:
        self.setup = Setup(**options)
        self.clock = Clock()
        self.log = EventLog()
        self.is_draining = False
        self.loop_errors: list[dict[str, Any]] = []
        self.arrivals: Arrivals | None = None
        self.attachments: Attachments | None = None
        self.own_listeners: Counter[Target] = Counter()
        self._expect_faults = expect_faults
        self._handed_out: list[socket.socket] = []
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name="support-DataPort", daemon=True)

    # Life.

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result(DEFAULT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        for sock in self._handed_out:
            sock.close()
        if error is not None:
            error.add_note(f"events: {self.log.all[-20:]}\nloop errors: {self.loop_errors}")
            return
        assert not self.loop_errors, self.loop_errors
        assert self._expect_faults or not self.log.of(Faulted), self.log.of(Faulted)

    def stop(self) -> None:
        """End everything, as the service does at the end of its drain. May be called twice."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(DEFAULT_S)
            assert not self._thread.is_alive(), "the data port does not end"

    # From the test's thread.

    @property
    def own(self) -> Target:
        return Target(ip_address("127.0.0.1"), self.port)

    def call(self, run: Callable[[], Result], timeout_s: float = DEFAULT_S) -> Result:
        """Run a function on the loop, and give what it returns."""

        async def on_loop() -> Result:
            return run()

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(timeout_s)

    def open(self, timeout_s: float = DEFAULT_S) -> socket.socket:
        """A client's connection; closed with the port at the latest."""
        sock = connect(self.port, timeout_s=timeout_s)
        self.close_at_end(sock)
        return sock

    def close_at_end(self, *socks: socket.socket) -> None:
        self._handed_out.extend(socks)

    def connect(self, target: str, extra: bytes = b"") -> tuple[socket.socket, Head]:
        """CONNECT, and the head of the answer; ``extra`` goes out in the same write."""
        sock = self.open()
        sock.sendall(connect_request(target) + extra)
        return sock, read_head(sock)

    def tunnel(self, target: str, extra: bytes = b"") -> socket.socket:
        """A tunnel that must be granted."""
        sock, head = self.connect(target, extra)
        assert head.status == 200, head.raw
        return sock

    def ask(self, request: bytes, timeout_s: float = DEFAULT_S) -> Response:
        """One request on a connection of its own, and the answer to it."""
        return exchange(self.port, request, timeout_s=timeout_s)

    def converse(self, octets: bytes, timeout_s: float = DEFAULT_S) -> tuple[bytes, End]:
        """Send, then all that comes until the other side ends; and how it ended."""
        sock = self.open()
        with contextlib.suppress(ConnectionError):  # refused while sending: the answer still counts
            sock.sendall(octets)
        return read_until_end(sock, timeout_s)

    def registered_descriptors(self) -> int:
        """How many descriptors the loop watches."""
        return self.call(lambda: len(self.loop._selector.get_map()))  # type: ignore[attr-defined]

    def watched_for_writing(self) -> int:
        """How many of them the loop watches for room to write."""

        def count() -> int:
            keys = self.loop._selector.get_map().values()  # type: ignore[attr-defined]
            return sum(bool(key.events & selectors.EVENT_WRITE) for key in keys)

        return self.call(count)

    def tasks(self) -> int:
        """How many tasks there are, that of `call` not counted."""
        return self.call(lambda: len(asyncio.all_tasks())) - 1

    def grant(self, rule: str, **limits: float) -> str:
        """Make a grant, as the control API does; its id."""
        made = Limits(**limits)  # type: ignore[arg-type]
        return self.call(lambda: self.grants.add(entry(rule), made)).id

    # On its own thread.

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(lambda _, context: self.loop_errors.append(context))
        self._stopping = asyncio.Event()
        self._epoll = EpollReadiness(self.loop) if self.setup.relay == "epoll" else None
        lookup = DnsLookup(_name_server(self.setup.resolver))
        async with NameCache(lookup, HostsFile(), self.loop.time) as names:
            self._compose(names)
            listener = listen_tcp("127.0.0.1", 0)
            self.port = listener.getsockname()[1]
            self.own_listeners[self.own] += 1
            self.table.start()
            async with asyncio.TaskGroup() as group:
                elsewhere, places = self._open_elsewhere, self.table.places
                self.intake = Intake(group, self._connection, self._kept, self.log, elsewhere, places)
                if self._epoll is not None:
                    self.arrivals = Arrivals(
                        self.parts,
                        self._epoll,
                        lambda: self.is_draining,
                        self.intake.serve,
                        self.intake.refuse_dial,
                    )
                    self.intake.newcomer = self.arrivals.take
                    self.intake.drop_newcomer = self.arrivals.drop_oldest_silent
                self.intake.listen(listener)
                if self.setup.attach is not None:
                    self._open_attach(self.setup.attach)
                self._started.set_result(None)
                await self._stopping.wait()
                self.intake.stop_accepting()
                if self.arrivals is not None:
                    self.arrivals.close()
                self.table.close_all()
                self.intake.end_all()
                if self.attachments is not None:
                    self.attachments.close()
            self.pool.close_idle()
        if self._epoll is not None:
            self._epoll.close()
        self._note_leftovers()

    def _compose(self, names: NameCache) -> None:
        setup = self.setup
        in_force = InForce(setup.policy(), setup.clients, setup.credentials)
        self.grants = MemoryGrantStore(self.clock, self.clock)
        outbound = Outbound(names.resolve, lambda: self.own_listeners, setup.connect_timeout_s, names.ready)
        readiness = self._epoll or LoopReadiness(self.loop)
        pipes = PipePool() if setup.relay == "epoll" else None  # bulk is spliced, and copied with "loop"
        self.table = TunnelTable(self.loop, readiness, setup.tunnels, self.log, self.grants, pipes)
        self.pool = UpstreamPool(outbound, setup.trust, self.loop.time)
        self.parts = Parts(
            in_force,
            self.grants,
            outbound,
            self.table,
            Forwarder(self.pool, lambda: in_force.credentials, setup.forwarding, setup.recorder),
            self.log,
            self.clock,
            setup.connections,
            setup.asker,
            self.log.sandboxes,
        )

    def _open_attach(self, path: Path) -> None:
        self.attachments = Attachments(
            self.parts, self.intake, self.own_listeners, self.port, self._end_client, lambda: self.is_draining
        )
        self.intake.listen(listen_attach(path), self.attachments.admit)

    def _end_client(self, sandbox: Client) -> None:
        self.intake.end_client(sandbox)
        if self.arrivals is not None:
            self.arrivals.end_client(sandbox)
        self.table.close_where(lambda facts: facts.client == sandbox, EndCause.SANDBOX_ENDED)

    def _open_elsewhere(self) -> int:
        waiting = 0 if self.arrivals is None else len(self.arrivals)
        return waiting + self.table.count().open

    def _connection(self, stream: SocketStream, peer: Peer) -> Connection:
        return Connection(self.parts, stream, peer, lambda: self.is_draining)

    def _kept(self, start: Start) -> KeptClients:
        return KeptClients(self.parts, lambda: self.is_draining, start)

    def _note_leftovers(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            self.loop_errors.append({"message": "tasks are left over", "tasks": left})
        if self.table.count().open:
            self.loop_errors.append({"message": "tunnels are left over"})


def _name_server(address: str | None) -> NameServer | None:
    if address is None:
        return None
    target = parse_authority(address)
    return NameServer(ip_address(str(target.host)), target.port)
