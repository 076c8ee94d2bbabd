"""Asks DNS for one name: both families at once, CNAME chains followed. The only importer of dnspython.

No cache and no limits here (name_cache.py), no judgement (core/dial_policy.py). Each look-up is for a whole
name; which ones a short name stands for is a question of its own. Next: name_cache.py, outbound.py.
"""

import asyncio
import io
import os
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

import dns.asyncresolver
import dns.exception
import dns.inet
import dns.name
import dns.rdatatype
import dns.resolver

from egress_proxy.core.address import Address
from egress_proxy.core.host import HostError, Name, parse_host
from egress_proxy.core.seams import Answer
from egress_proxy.proxy.name_cache import Found

# IPv6 first where both answer at once (RFC 8305 3).
_FAMILIES = (dns.rdatatype.AAAA, dns.rdatatype.A)
# How long the second family is waited for once the first has addresses; many resolvers never answer AAAA.
SECOND_FAMILY_WAIT_S = 0.25
# A TTL of days must not outlive a change that a person has just made.
TTL_LIMIT_S = 300.0
NEGATIVE_TTL_S = 2.0
# Half an answer (the other family was late, or its query failed) is good for the connections of a moment.
HALF_TTL_S = 1.0
QUERY_TIMEOUT_S = 10.0
_RESOLV_CONF = "/etc/resolv.conf"


@dataclass(frozen=True, slots=True)
class NameServer:
    """A DNS server to ask instead of the system's."""

    address: Address
    port: int = 53


class DnsLookup:
    """Implements `Lookup`. The system's servers are read again when resolv.conf changes (a VPN came up)."""

    def __init__(self, server: NameServer | None) -> None:
        self._server = server
        self._stamp: tuple[int, int] | None = None
        self._resolver: dns.asyncresolver.Resolver | None = None

    async def __call__(self, name: Name) -> Found:
        resolver = self._current()
        if resolver is None:
            return Found(Answer(()), NEGATIVE_TTL_S, "this machine has no DNS server configured")
        return await _ask_both(resolver, dns.name.from_text(name.text + "."))

    def completions(self, name: Name) -> tuple[Name, ...]:
        """The names that the system's resolver would try, in its order (resolv.conf(5): search, ndots)."""
        resolver = None if self._server else self._current()
        if resolver is None:
            return (name,)
        below = [_below(name, domain) for domain in resolver.search or [resolver.domain]]
        completed = tuple(dict.fromkeys(whole for whole in below if whole is not None))
        ndots = 1 if resolver.ndots is None else resolver.ndots
        return (name, *completed) if name.text.count(".") >= ndots else (*completed, name)

    def _current(self) -> dns.asyncresolver.Resolver | None:
        stamp = None if self._server else _stamp_of(_RESOLV_CONF)
        if self._resolver is None or stamp != self._stamp:
            self._stamp = stamp
            self._resolver = _make_resolver(self._server)
        return self._resolver


def _make_resolver(server: NameServer | None) -> dns.asyncresolver.Resolver | None:
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.cache = None  # name_cache.py is the cache
    if server is not None:
        resolver.nameservers = [str(server.address)]
        resolver.port = server.port
        return resolver
    try:
        resolver.read_resolv_conf(io.StringIO(_usable_lines(Path(_RESOLV_CONF).read_bytes())))
    except (OSError, dns.resolver.NoResolverConfiguration):
        return None
    return resolver


def _usable_lines(resolv_conf: bytes) -> str:
    """Without what we do not use or dnspython cannot read: one such line would cost us all the others."""
    lines = resolv_conf.decode("latin-1").split("\n")
    return "\n".join(line for line in lines if _is_usable(line.split()))


def _is_usable(words: list[str]) -> bool:
    match words:
        case ["nameserver", address, *_]:
            return dns.inet.is_address(address)
        case ["options", *_]:
            return True
        case ["search" | "domain", _, *_]:
            return all(_is_domain(word) for word in words[1:])
        case _:
            return False


def _is_domain(word: str) -> bool:
    try:
        dns.name.from_text(word)
    except (dns.exception.DNSException, UnicodeError):
        return False
    return True


def _below(name: Name, domain: dns.name.Name) -> Name | None:
    """None where that is no name: the root, or longer than any."""
    suffix = domain.to_text(omit_final_dot=True)
    try:
        host = parse_host(f"{name.text}.{suffix}")
    except HostError:
        return None
    return host if isinstance(host, Name) else None


def _stamp_of(path: str) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_ino


async def _ask_both(resolver: dns.asyncresolver.Resolver, name: dns.name.Name) -> Found:
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_ask(resolver, name, family)) for family in _FAMILIES]
        done, late = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        if late:
            has_addresses = any(task.result().answer.addresses for task in done)
            await asyncio.wait(late, timeout=SECOND_FAMILY_WAIT_S if has_addresses else None)
        for task in asked:
            task.cancel()
    answered = [task.result() for task in asked if not task.cancelled()]
    found = _merge(answered)
    is_half = len(answered) < len(asked) or any(part.ttl_s == 0 and part.failure for part in answered)
    return replace(found, ttl_s=min(found.ttl_s, HALF_TTL_S)) if is_half else found


def _merge(parts: list[Found]) -> Found:
    """One answer of both families; a failure counts only when neither has addresses."""
    good = [part for part in parts if part.answer.addresses]
    # A chain is kept from every part: a metadata name in it refuses, whichever family told of it.
    chain = tuple(dict.fromkeys(name for part in parts for name in part.answer.chain))
    if good:
        addresses = tuple(address for part in good for address in part.answer.addresses)
        return Found(Answer(addresses, chain), min(part.ttl_s for part in good))
    worst = next((part for part in parts if part.ttl_s == 0), parts[0])
    return Found(Answer((), chain), worst.ttl_s, worst.failure, worst.timed_out)


async def _ask(
    resolver: dns.asyncresolver.Resolver, name: dns.name.Name, family: dns.rdatatype.RdataType
) -> Found:
    try:
        answer = await resolver.resolve(
            name, family, search=False, lifetime=QUERY_TIMEOUT_S, raise_on_no_answer=False
        )
    except dns.resolver.NXDOMAIN:
        return Found(Answer(()), NEGATIVE_TTL_S, "the name does not exist")
    except dns.exception.Timeout:
        return Found(Answer(()), 0.0, "no DNS server answered in time", timed_out=True)
    except (dns.exception.DNSException, OSError):
        return Found(Answer(()), 0.0, "the DNS server failed")
    links = answer.chaining_result
    chain = tuple(_text(rrset[0].target) for rrset in links.cnames)
    addresses = tuple(ip_address(record.address) for record in answer.rrset or ())
    ttl_s = min(links.minimum_ttl, TTL_LIMIT_S) if addresses else NEGATIVE_TTL_S
    return Found(Answer(addresses, chain), ttl_s, "" if addresses else "the name has no addresses")


def _text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower()
