"""A running control API for tests: the real server, scripted parts behind it, and requests to the byte.

No test is here. See conftest.py for the fixture, support/http.py for the reader of answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from control_api.deps import ControlDeps, Phase, ServiceStatus
from control_api.server import ControlServer
from egress_proxy.core.events import ControlRefused, EndCause, Event
from egress_proxy.core.host import Target, parse_authority
from egress_proxy.core.policy import OnMiss, denial_of, rule_index
from egress_proxy.core.rules import Rule, Suffix
from egress_proxy.core.seams import ReloadOutcome, TunnelCount
from egress_proxy.proxy.grant_store import MemoryGrantStore
from tests.support.http import Head, Response, parse_head, request_bytes

TOKEN = "c0ntr0l-T0ken"
NOW = 1_800_000_000.0
DEADLINE_S = 5.0
JSON = ("Content-Type", "application/json")
BEARER = ("Authorization", f"Bearer {TOKEN}")
SUFFIXES = {"com": Suffix.ICANN, "github.io": Suffix.PRIVATE}

Body = bytes | dict[str, object] | None
Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HeaderLines = Sequence[tuple[str, str]]


@dataclass
class ScriptedTunnels:
    """Implements the Tunnels seam: every grant has ``resting`` tunnels."""

    resting: int = 0
    closed: list[tuple[str, EndCause]] = field(default_factory=list)

    def count(self) -> TunnelCount:
        return TunnelCount(7, 4096)

    def close_grant(self, grant_id: str, cause: EndCause) -> int:
        self.closed.append((grant_id, cause))
        return self.resting


class ControlService:
    """The server and all that stands behind it. Tests turn the attributes."""

    def __init__(self) -> None:
        self.now = NOW
        self.grants = MemoryGrantStore(lambda: self.now, lambda: self.now)
        self.tunnels = ScriptedTunnels()
        self.events: list[Event] = []
        self.audit_fault: Exception | None = None
        self.health = "ok"
        self.reload_outcome: int | Exception = 0
        self.reload_takes_s = 0.0
        self.reloads = 0
        self.own: list[Target] = [parse_authority("127.0.0.1:8899")]
        self.clients: list[str] = ["build", "ci"]
        self.deny: list[Rule] = []
        self.port = 0
        self.server = ControlServer(self.deps())

    def deps(self) -> ControlDeps:
        return ControlDeps(
            is_token=lambda sent: hmac.compare_digest(sent, TOKEN.encode()),
            grants=self.grants,
            tunnels=self.tunnels,
            reload=self._reload,
            audit=self._audit,
            now=lambda: self.now,
            clock=lambda: self.now,
            suffix_of=lambda name: SUFFIXES.get(name, Suffix.NONE),
            own_listeners=lambda: self.own,
            client_ids=lambda: self.clients,
            denial_of=lambda rule: denial_of(rule, rule_index(self.deny)),
            status=self._status,
            health=lambda: self.health,
        )

    async def __aenter__(self) -> Self:
        self.port = await self.server.start(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.server.stop()

    @property
    def host(self) -> tuple[str, str]:
        return ("Host", f"127.0.0.1:{self.port}")

    @property
    def refusals(self) -> list[ControlRefused]:
        return [event for event in self.events if isinstance(event, ControlRefused)]

    def entries(self) -> list[str]:
        return [str(grant.rule) for grant in self.grants.snapshot().by_id.values()]

    @contextlib.asynccontextmanager
    async def connect(self, raw: bytes = b"") -> AsyncIterator[Connected]:
        """A connection on which these bytes have been sent; all that happens on it has a deadline."""
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(raw)
                yield reader, writer
            finally:
                writer.close()

    async def send(self, raw: bytes) -> Response:
        """One connection, these bytes, the final answer."""
        async with self.connect(raw) as (reader, _):
            return await read_answer(reader, head_only=raw.startswith(b"HEAD "))

    async def request(self, method: str, path: str, headers: HeaderLines, body: Body = None) -> Response:
        """Exactly these headers; a dict becomes JSON, a body gets its Content-Length."""
        content = json.dumps(body).encode() if isinstance(body, dict) else body or b""
        return await self.send(request_bytes(method, path, headers, content))

    async def call(self, method: str, path: str, body: Body = None) -> Response:
        """As a good client does it."""
        return await self.request(method, path, (self.host, BEARER, JSON), body)

    async def allow(self, **fields: object) -> Response:
        return await self.call("POST", "/allow", fields)

    async def _reload(self) -> ReloadOutcome:
        self.reloads += 1
        await asyncio.sleep(self.reload_takes_s)
        if isinstance(self.reload_outcome, Exception):
            raise self.reload_outcome
        return ReloadOutcome(self.reload_outcome, 0)

    def _audit(self, *events: Event) -> None:
        if self.audit_fault is not None:
            raise self.audit_fault
        self.events.extend(events)

    def _status(self) -> ServiceStatus:
        listeners = tuple(self.own)
        return ServiceStatus("1.2.3", NOW - 60.0, Phase.SERVING, listeners, OnMiss.HOLD, 3, 2, 1)


async def read_answer(reader: asyncio.StreamReader, *, head_only: bool = False) -> Response:
    """The final answer, with the interim heads before it."""
    interim: list[Head] = []
    while (head := parse_head(await reader.readuntil(b"\r\n\r\n"))).status == 100:
        interim.append(head)
    length = int(head.value("Content-Length") or 0)
    body = b"" if head_only else await reader.readexactly(length)
    return Response(head, body, interim=tuple(interim))


def error_of(response: Response) -> tuple[int, str]:
    """Status and code of a refusal, whose shape is checked besides: two texts and no more."""
    problem: Any = response.json()
    assert problem.keys() == {"error", "detail"}
    assert isinstance(problem["detail"], str)
    assert problem["detail"].isprintable()
    assert response.value("Content-Type") == "application/json"
    return response.status, str(problem["error"])
