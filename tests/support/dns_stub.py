"""A stub name server on 127.0.0.1, UDP and TCP on one port, that counts what it is asked.

Its zone may be changed while it runs; it forwards nothing and answers NXDOMAIN for unknown names.
How records become messages is in dns_zone.py, sockets and delays are in dns_server.py.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import dns.exception
import dns.message
import dns.rcode
import dns.rdatatype

from tests.support.deadline import DEFAULT_S, wait_for
from tests.support.dns_server import DnsServer, Reply
from tests.support.dns_zone import (
    DEFAULT_NEGATIVE_TTL_S,
    Addresses,
    Alias,
    BlackHole,
    Failure,
    Missing,
    Record,
    Zone,
    zone_key,
)


@dataclass(frozen=True, slots=True)
class Query:
    """One query as it came in; ``name`` keeps the spelling that was sent, without the last dot."""

    name: str
    rdtype: str  # "A", "AAAA", …
    transport: str  # "udp" or "tcp"


class DnsStub:
    """``with DnsStub() as dns``. Every method may be called from any thread at any time."""

    def __init__(self) -> None:
        self._zone = Zone()
        self._log: list[Query] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._malformed = 0
        self._changed = threading.Condition()
        self._server = DnsServer(self._answer)
        self.port = self._server.port
        self.address = f"127.0.0.1:{self.port}"  # what --resolver takes

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stop()

    # The zone. A name is given in any case, with or without a last dot; ``*.x`` stands for all
    # names below ``x`` that have no record of their own, ``*`` for all names.

    def add(self, name: str, *addresses: str, ttl: int = 60) -> None:
        """Answer ``name`` with these IPv4 and IPv6 addresses, in this order. Replaces."""
        self.add_in_turn(name, addresses, ttl=ttl)

    def add_in_turn(self, name: str, *turns: Sequence[str], ttl: int = 0) -> None:
        """The k-th query of each type gets the k-th list, the last repeats (rebinding tests)."""
        for address in (text for turn in turns for text in turn):
            ipaddress.ip_address(address)  # a slip in a test should be loud
        self._put(name, Addresses(tuple(tuple(turn) for turn in turns), ttl))

    def cname(self, name: str, target: str, *, ttl: int = 60) -> None:
        """``name`` is an alias; the chain is followed inside this zone."""
        self._put(name, Alias(target, ttl))

    def nxdomain(self, name: str, *, negative_ttl: int = DEFAULT_NEGATIVE_TTL_S) -> None:
        self._put(name, Missing(negative_ttl))

    def nodata(self, name: str) -> None:
        """``name`` exists, but has neither A nor AAAA records."""
        self._put(name, Addresses(((),), DEFAULT_NEGATIVE_TTL_S))

    def servfail(self, name: str) -> None:
        self.fail(name, dns.rcode.SERVFAIL)

    def fail(self, name: str, rcode: dns.rcode.Rcode) -> None:
        self._put(name, Failure(rcode))

    def black_hole(self, name: str) -> None:
        """Queries for ``name`` are counted and never answered."""
        self._put(name, BlackHole())

    def delay(self, name: str, seconds: float) -> None:
        """Answers for exactly ``name`` come this much later; queries for others do not wait."""
        with self._changed:
            self._zone.delays_s[zone_key(name)] = seconds

    def truncate(self, name: str) -> None:
        """UDP answers for exactly ``name`` are empty with TC set; TCP gives the whole answer."""
        with self._changed:
            self._zone.truncated.add(zone_key(name))

    def remove(self, name: str) -> None:
        """Forget ``name``, but for its counters: NXDOMAIN or a wildcard answers from now on."""
        with self._changed:
            self._zone.forget(name)

    # What was asked.

    def queries(self, name: str, rdtype: str | None = None) -> int:
        """How often ``name`` was asked for, in any case; of one type or of all."""
        with self._changed:
            return self._count(zone_key(name), rdtype)

    @property
    def total_queries(self) -> int:
        """All queries of any name and type, and also datagrams that could not be read."""
        with self._changed:
            return len(self._log) + self._malformed

    @property
    def log(self) -> list[Query]:
        with self._changed:
            return list(self._log)

    def wait_for_queries(
        self, name: str, n: int, timeout_s: float = DEFAULT_S, rdtype: str | None = None
    ) -> None:
        """Wait until ``name`` was asked for at least ``n`` times."""
        key = zone_key(name)
        what = f"{n} queries for {name}"
        wait_for(self._changed, lambda: self._count(key, rdtype) >= n, timeout_s, what)

    def reset_counters(self) -> None:
        with self._changed:
            self._log.clear()
            self._counts.clear()
            self._malformed = 0

    # Inside.

    def _put(self, name: str, record: Record) -> None:
        with self._changed:
            self._zone.put(name, record)

    def _count(self, key: str, rdtype: str | None) -> int:
        if rdtype is not None:
            return self._counts[key, rdtype]
        return sum(n for (name, _), n in self._counts.items() if name == key)

    def _answer(self, wire: bytes, transport: str) -> Reply | None:
        """Called by the server's thread for every query."""
        with self._changed:
            try:
                query = dns.message.from_wire(wire)
                question = query.question[0]
            except (dns.exception.DNSException, IndexError):
                self._malformed += 1
                return None
            name = question.name.to_text(omit_final_dot=True)
            key, rdtype = zone_key(name), dns.rdatatype.to_text(question.rdtype)
            self._log.append(Query(name, rdtype, transport))
            self._counts[key, rdtype] += 1
            self._changed.notify_all()
            answer = self._zone.answer(query, udp=transport == "udp")
            return None if answer is None else Reply(answer, self._zone.delays_s.get(key, 0.0))
