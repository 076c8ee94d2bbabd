"""Lookups shared, cached by TTL and bounded, so that slow or invented names do not starve others.

How a name is asked for is resolver.py's business; nothing is judged here. Called only for targets that
policy let through: a lookup carries the name to strangers. Next: resolver.py, hosts_file.py.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from egress_proxy.core.host import Name
from egress_proxy.core.seams import Answer
from egress_proxy.proxy.hosts_file import HostsFile

CACHE_NAMES = 4096
# Wildcard entries let a client invent names. So many lookups may run below one parent, below one suffix and
# in all; further ones wait their turn, so slow names hold up their own siblings at most.
LOOKUPS_PER_PARENT = 16
LOOKUPS_PER_SUFFIX = 64
LOOKUPS_IN_ALL = 256


class NoSuchName(Exception):
    """The name has no addresses, or its servers failed. The message says which."""


class ResolverTimeout(Exception):
    """No DNS server answered in time."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup brought, good for ``ttl_s`` seconds. Without addresses, ``failure`` says why."""

    answer: Answer
    ttl_s: float
    failure: str = ""
    timed_out: bool = False


Lookup = Callable[[Name], Awaitable[Found]]
"""Asks for one name; never raises for what a server may answer or fail to."""

Completions = Callable[[Name], tuple[Name, ...]]
"""The names that the machine's resolver would try for one, never none, in its order."""


@dataclass(slots=True)
class _Shared:
    """A lookup under way, and how many wait for it."""

    task: asyncio.Task[Found | BaseException]
    waiting: int = 0


class NameCache:
    """Implements the Resolve seam. `async with` it: lookups run in its own task group and end with it."""

    def __init__(
        self,
        lookup: Lookup,
        hosts: HostsFile,
        clock: Callable[[], float],
        completions: Completions = lambda name: (name,),
    ) -> None:
        self._lookup = lookup
        self._completions = completions
        self._hosts = hosts
        self._clock = clock
        self._cache: OrderedDict[Name, tuple[Found, float]] = OrderedDict()
        self._running: dict[Name, _Shared] = {}
        self._in_all = asyncio.Semaphore(LOOKUPS_IN_ALL)
        self._siblings: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> "NameCache":
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for shared in self._running.values():
            shared.task.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def resolve(self, name: Name) -> Answer:
        """The addresses of a name. Raises NoSuchName, ResolverTimeout. The caller bounds the time."""
        ready = self.ready(name)
        if ready is not None:
            return ready
        found = self._cached(name) or await self._shared(name)
        if found.timed_out:
            raise ResolverTimeout(found.failure)
        if not found.answer.addresses:
            raise NoSuchName(found.failure)
        return found.answer

    def ready(self, name: Name) -> Answer | None:
        """The addresses of a name where nothing has to be waited for."""
        local = self._hosts.addresses(name)
        if local:
            return Answer(local)
        found = self._cached(name)
        return found.answer if found is not None and found.answer.addresses else None

    def completions(self, name: Name) -> tuple[Name, ...]:
        """The whole names to ask for in turn: what the hosts file knows is complete."""
        return (name,) if self._hosts.addresses(name) else self._completions(name)

    def _cached(self, name: Name) -> Found | None:
        found, expires_at = self._cache.get(name, (None, 0.0))
        return found if expires_at > self._clock() else None

    async def _shared(self, name: Name) -> Found:
        shared = self._running.get(name)
        if shared is None:
            shared = self._running[name] = _Shared(self._tasks.create_task(self._run(name)))
        shared.waiting += 1
        try:
            # Shielded: a client that goes away must not end the lookup that others wait for.
            outcome = await asyncio.shield(shared.task)
        finally:
            shared.waiting -= 1
            if not shared.waiting:
                # Names that a client invents and gives up would pile up before those that are waited for.
                del self._running[name]
                shared.task.cancel()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def _run(self, name: Name) -> Found | BaseException:
        siblings = self._turns(_last(name, _owner_labels(name)), LOOKUPS_PER_PARENT)
        # A short domain passes for a suffix, and each name invented below it for an owner: bounded here.
        neighbours = self._turns("." + _last(name, 2), LOOKUPS_PER_SUFFIX)
        async with siblings, neighbours, self._in_all:
            # A fault is for those who wait to raise: the task group would end the whole service with it.
            (outcome,) = await asyncio.gather(self._lookup(name), return_exceptions=True)
        if isinstance(outcome, Found):
            self._remember(name, outcome)
        return outcome

    def _turns(self, key: str, limit: int) -> asyncio.Semaphore:
        return self._siblings.setdefault(key, asyncio.Semaphore(limit))

    def _remember(self, name: Name, found: Found) -> None:
        if found.ttl_s > 0:
            self._cache.pop(name, None)
            self._cache[name] = (found, self._clock() + found.ttl_s)
            while len(self._cache) > CACHE_NAMES:
                self._cache.popitem(last=False)


def _owner_labels(name: Name) -> int:
    """Roughly how many labels name the owner, without the public-suffix list: `x.co.uk` three, `x.org` two.

    A wrong guess makes strangers wait for one another, and no more.
    """
    labels = name.text.split(".")
    is_second_level = len(labels[-1]) == 2 and len(labels[-2:][0]) <= 3
    return 3 if is_second_level else 2


def _last(name: Name, count: int) -> str:
    return ".".join(name.text.split(".")[-count:])
