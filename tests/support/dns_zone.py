"""What the stub name server answers: records per name, and the message made from them.

No sockets and no threads; the owner of a zone serialises access to it.
See dns_stub.py for the server and for the methods that tests call.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass, field

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

_LONGEST_CHAIN = 16  # CNAME loops end here, with what was collected so far
_PLAIN_UDP_BYTES = 512  # RFC 1035 section 4.2.1, when the query has no EDNS size
DEFAULT_NEGATIVE_TTL_S = 60


@dataclass(frozen=True, slots=True)
class Addresses:
    """A and AAAA answers; the k-th answer of a type is the k-th turn, the last turn repeats."""

    turns: tuple[tuple[str, ...], ...]
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Alias:
    target: str
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Missing:
    """NXDOMAIN with an SOA whose minimum is ``negative_ttl_s`` (RFC 2308)."""

    negative_ttl_s: int = DEFAULT_NEGATIVE_TTL_S


@dataclass(frozen=True, slots=True)
class Failure:
    rcode: dns.rcode.Rcode


@dataclass(frozen=True, slots=True)
class BlackHole:
    """The query is counted and never answered, over UDP and over TCP."""


Record = Addresses | Alias | Missing | Failure | BlackHole


def zone_key(name: str) -> str:
    """The form in which names are stored and counted: lower case, no dot at the end."""
    return name.lower().rstrip(".")


@dataclass(slots=True)
class Zone:
    """Records by name. ``*.x`` covers every name below ``x``, ``*`` every name without its own."""

    records: dict[str, Record] = field(default_factory=dict)
    delays_s: dict[str, float] = field(default_factory=dict)
    truncated: set[str] = field(default_factory=set)
    _turns_taken: Counter[tuple[str, str]] = field(default_factory=Counter)

    def put(self, name: str, record: Record) -> None:
        key = zone_key(name)
        self.records[key] = record
        for rdtype in ("A", "AAAA"):
            del self._turns_taken[key, rdtype]

    def forget(self, name: str) -> None:
        key = zone_key(name)
        self.records.pop(key, None)
        self.delays_s.pop(key, None)
        self.truncated.discard(key)

    def find(self, name: str) -> Record:
        key = zone_key(name)
        labels = key.split(".")
        patterns = [key, *("*." + ".".join(labels[i:]) for i in range(1, len(labels))), "*"]
        return next((self.records[p] for p in patterns if p in self.records), Missing())

    def answer(self, query: dns.message.Message, *, udp: bool) -> bytes | None:
        """The wire form of the answer; None for silence."""
        question = query.question[0]
        asked = question.name
        record = self.find(asked.to_text())
        response = dns.message.make_response(query, recursion_available=True)
        if udp and zone_key(asked.to_text()) in self.truncated:
            response.flags |= dns.flags.TC
            return response.to_wire()
        owner = asked
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(record, Alias):
                break
            target = dns.name.from_text(record.target)
            _append(response, owner, record.ttl_s, dns.rdatatype.CNAME, target.to_text())
            owner, record = target, self.find(record.target)
        match record:
            case BlackHole():
                return None
            case Failure(rcode):
                response.set_rcode(rcode)
            case Missing(negative_ttl_s):
                response.set_rcode(dns.rcode.NXDOMAIN)
                _add_soa(response, owner, negative_ttl_s)
            case Addresses():
                turn = self._next_turn(zone_key(owner.to_text()), record, question.rdtype)
                _add_addresses(response, owner, turn, record.ttl_s, question.rdtype)
            case Alias():
                pass  # a loop: the chain so far is the answer
        return _fitting(query, response, udp)

    def _next_turn(self, key: str, record: Addresses, rdtype: dns.rdatatype.RdataType) -> tuple[str, ...]:
        taken = key, dns.rdatatype.to_text(rdtype)
        earlier = self._turns_taken[taken]
        self._turns_taken[taken] += 1
        return record.turns[min(earlier, len(record.turns) - 1)]


def _append(
    response: dns.message.Message,
    owner: dns.name.Name,
    ttl_s: int,
    rdtype: dns.rdatatype.RdataType,
    *texts: str,
) -> None:
    for text in texts:  # one set each: dnspython shuffles the records of one set when it writes
        record = dns.rrset.from_text(owner, ttl_s, dns.rdataclass.IN, rdtype, text)
        response.answer.append(record)


def _add_addresses(
    response: dns.message.Message,
    owner: dns.name.Name,
    turn: tuple[str, ...],
    ttl_s: int,
    rdtype: dns.rdatatype.RdataType,
) -> None:
    version = {dns.rdatatype.A: 4, dns.rdatatype.AAAA: 6}.get(rdtype)
    texts = [text for text in turn if ipaddress.ip_address(text).version == version]
    if texts:
        _append(response, owner, ttl_s, rdtype, *texts)
    else:  # NODATA: the name exists, this type does not
        _add_soa(response, owner, DEFAULT_NEGATIVE_TTL_S)


def _add_soa(response: dns.message.Message, owner: dns.name.Name, negative_ttl_s: int) -> None:
    zone = dns.name.Name(owner.labels[-2:])  # the top-level domain stands for the whole zone
    text = f"ns.stub.invalid. hostmaster.stub.invalid. 1 3600 600 86400 {negative_ttl_s}"
    soa = dns.rrset.from_text(zone, negative_ttl_s, dns.rdataclass.IN, dns.rdatatype.SOA, text)
    response.authority.append(soa)


def _fitting(query: dns.message.Message, response: dns.message.Message, udp: bool) -> bytes:
    wire = response.to_wire()
    room = max(_PLAIN_UDP_BYTES, query.payload)  # payload is 0 without EDNS
    if not udp or len(wire) <= room:
        return wire
    short = dns.message.make_response(query, recursion_available=True)
    short.flags |= dns.flags.TC
    return short.to_wire()
