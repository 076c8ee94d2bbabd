"""Clients of an inject rule that go at any moment, or stay to the end, and judge each answer that they get.

An answer is their own and whole, or visibly cut. Next: visits.py (what they set out to do),
obedient_upstream.py (does what they say), remains.py (what must not be kept), check.py (for how long).
"""

from __future__ import annotations

import itertools
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tests.benchmarks.endurance.leaving import crowd, leave, read_for
from tests.benchmarks.endurance.obedient_upstream import ANSWERS, NARROW_BYTES, NUMBER, SLOW_S, Deed
from tests.benchmarks.endurance.visits import HOST, Door, Request, Visit, drawn_visit
from tests.support.byte_stream import End, Truncated, connect, end_direction, read_until_end
from tests.support.http import Response, read_head, read_response
from tests.support.service import Service
from tests.support.service_answers import connect_request

_PATIENCE_S = 20.0  # of those who stay: longer, and something is stuck


@dataclass(slots=True)
class Killing:
    """What the clients did and got. ``faults``: answers that nobody should have got."""

    clients: Counter[str] = field(default_factory=Counter)
    requests: Counter[Deed] = field(default_factory=Counter)
    answered: Counter[Deed] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, visit: Visit, answers: list[Response], fault: str | None) -> None:
        with self._lock:
            self.clients[f"{visit.door}: {visit.end or 'stays'}"] += 1
            self.requests.update(request.wish.deed for request in visit.requests)
            for request, response in zip(visit.requests, answers, strict=False):
                refusal = response.value("X-Proxy-Error")
                if refusal is None:
                    self.answered[request.wish.deed] += 1
                else:
                    self.refused[refusal] += 1
            if fault is not None:
                self.faults.append(fault)

    def __str__(self) -> str:
        clients, requests = self.clients.total(), self.requests.total()
        return (
            f"{requests:,} injected requests of {clients:,} clients in {len(self.clients)} ways: "
            f"{self.answered.total():,} answered, {self.refused.total():,} refused"
        )

    def unanswered(self) -> list[str]:
        """A kind of answer that never came whole has not been tested."""
        return [f"no answer of {deed} came whole" for deed in sorted(ANSWERS - self.answered.keys())]


class _Wrong(Exception):
    """An answer that this client should not have got, or none where one is due."""


def kill_injected(service: Service, duration_s: float, done: Killing, seed: int = 1) -> None:
    """For ``duration_s``. All connections of clients have been closed on return."""

    def once(rng: random.Random) -> None:
        visit, fault = drawn_visit(rng, done.numbers), None
        answers: list[Response] = []
        try:
            _make(visit, service.proxy_port, rng, answers)
        except _Wrong as wrong:
            fault = f"{wrong}; {visit}"
        done.add(visit, answers, fault)

    crowd(duration_s, seed, once)


def _make(visit: Visit, port: int, rng: random.Random, answers: list[Response]) -> None:
    """Raises _Wrong. ``answers``: those that were complete."""
    stay_s = _PATIENCE_S if visit.end is None else visit.stay_s
    ends_at = time.monotonic() + stay_s
    with connect(port, timeout_s=_PATIENCE_S) as sock:
        if visit.is_slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
        try:
            _converse(visit, sock, ends_at, answers)
        except TimeoutError:
            if visit.end is None:
                raise _Wrong(f"after {_PATIENCE_S:g} s answer {len(answers)} was not whole") from None
        except (Truncated, ConnectionError) as lost:
            raise _Wrong(f"after {len(answers)} answers the connection was lost: {lost!r}") from None
        if visit.end is not None:
            with suppress(ConnectionError):  # of an answer that is cut just now
                leave(visit.end, rng, sock)


def _left_s(ends_at: float) -> float:
    left_s = ends_at - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _send(visit: Visit, sock: socket.socket, octets: bytes, ends_at: float) -> None:
    cut = len(octets) // 2 if visit.is_in_pieces else 0
    for piece in (octets[:cut], octets[cut:]):
        sock.settimeout(_left_s(ends_at))
        sock.sendall(piece)
        if visit.is_in_pieces:
            time.sleep(0.001)  # so that they come apart, as a rule


def _converse(visit: Visit, sock: socket.socket, ends_at: float, answers: list[Response]) -> None:
    """Send and read to the last answer or the end of the stream. Raises _Wrong, TimeoutError."""
    writes = [request.octets(visit.door) for request in visit.requests]
    writes[-1] = writes[-1][: round(len(writes[-1]) * visit.last_share)]
    opening = connect_request(f"{HOST}:80") if visit.door is Door.CONNECT else b""
    if visit.is_pipelined:
        opening += b"".join(writes)
    try:
        _send(visit, sock, opening, ends_at)
        if visit.ends_direction:
            end_direction(sock)
        if visit.door is Door.CONNECT and read_head(sock, _left_s(ends_at)).status != 200:
            raise _Wrong("the CONNECT was refused")
    except ConnectionError:
        if not visit.is_pipelined or all(request.gets_an_answer for request in visit.requests):
            raise
        return  # an answer was cut while the next requests went out
    for at, (request, octets) in enumerate(zip(visit.requests, writes, strict=True)):
        if not visit.is_pipelined:
            _send(visit, sock, octets, ends_at)
        if visit.is_slow and request.wish.answer_bytes > NARROW_BYTES:
            time.sleep(min(SLOW_S, _left_s(ends_at)))
        if request.wish.deed is Deed.FLOOD:
            read_for(_left_s(ends_at), sock)
            return
        # The reset of an answer that is cut takes along what is on its way of those before.
        sent = visit.requests[at:] if visit.is_pipelined else (request,)
        response = _read(request, sock, ends_at, may_be_reset=not all(one.gets_an_answer for one in sent))
        if response is None:
            return
        answers.append(response)
        _judge(request, response)
        if request.ends_connection(response):
            _expect_end(visit, request, sock)
            return


def _read(request: Request, sock: socket.socket, ends_at: float, *, may_be_reset: bool) -> Response | None:
    """A complete answer, or None where it was cut and may be."""
    try:
        return read_response(sock, request.method, _left_s(ends_at))
    except ConnectionError:
        if not may_be_reset:
            raise _Wrong(f"the answer to {request} was cut") from None
        return None
    except Truncated as ended:
        raise _Wrong(f"the answer to {request} was cut and ended clean: {ended}") from None
    except ValueError as error:
        raise _Wrong(f"the answer to {request} is not HTTP: {error}") from None


def _judge(request: Request, response: Response) -> None:
    refusal = response.value("X-Proxy-Error")
    if refusal is not None:
        if request.gets_its_own or refusal != "upstream-protocol":
            raise _Wrong(f"{request} was refused: {response.status} {refusal}, {response.body!r}")
        if response.value("Connection") != "close":
            raise _Wrong(f"the refusal of {request} does not end the connection")
        return
    number = response.value(NUMBER)
    if number != str(request.wish.number):
        raise _Wrong(f"{request} got the answer to {number}")
    wanted = b"" if request.method == "HEAD" else request.wish.body
    if not request.may_be_complete or response.body != wanted:
        raise _Wrong(f"{request} got {len(response.body)} bytes that look like a complete answer")


def _expect_end(visit: Visit, request: Request, sock: socket.socket) -> None:
    """Behind the last answer nothing comes, and no reset that could overtake it."""
    if visit.end is None:
        received, end = read_until_end(sock, _PATIENCE_S)
        if received or end is not End.EOF:
            raise _Wrong(f"behind the answer to {request} came {received[:80]!r} and {end}")
