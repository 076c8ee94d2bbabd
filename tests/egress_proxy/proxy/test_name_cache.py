"""Rules of shared lookups: one for all who ask, kept as long as it is good, and no name starves another.

The lookup is a scripted one; time is a number that the test sets. With a real server: test_resolver.py.
See egress_proxy/proxy/name_cache.py.
"""

import asyncio
import contextlib
from collections import Counter
from ipaddress import ip_address
from pathlib import Path

import pytest

from egress_proxy.core.host import Name
from egress_proxy.core.seams import Answer
from egress_proxy.proxy import name_cache
from egress_proxy.proxy.hosts_file import HostsFile
from egress_proxy.proxy.name_cache import (
    LOOKUPS_IN_ALL,
    LOOKUPS_PER_PARENT,
    Found,
    NameCache,
    NoSuchName,
    ResolverTimeout,
)

NAME = Name("ok.example")
ANSWER = Answer((ip_address("192.0.2.1"), ip_address("2001:db8::1")), ("alias.example",))
FOUND = Found(ANSWER, 60.0)
SOON_S = 5.0  # nothing here waits for the network: more than this is a hang


class ScriptedLookup:
    """Answers ``found``; names below ``slow.example`` wait until the test lets them go."""

    def __init__(self, found: Found = FOUND) -> None:
        self.found = found
        self.asked: Counter[str] = Counter()
        self.running: set[str] = set()
        self.most = 0
        self.go = asyncio.Event()

    async def __call__(self, name: Name) -> Found:
        self.asked[name.text] += 1
        self.running.add(name.text)
        self.most = max(self.most, len(self.running))
        try:
            if "slow" in name.text:
                await self.go.wait()
            return self.found
        finally:
            self.running.remove(name.text)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Cached:
    """A cache with all that it is made of."""

    def __init__(self, tmp_path: Path) -> None:
        self.lookup, self.clock, self.hosts_path = ScriptedLookup(), Clock(), tmp_path / "hosts"
        self.cache = NameCache(self.lookup, HostsFile(self.hosts_path), self.clock)

    async def resolve(self, name: str | Name = NAME) -> Answer:
        async with asyncio.timeout(SOON_S):
            return await self.cache.resolve(Name(name) if isinstance(name, str) else name)


@pytest.fixture
async def cached(tmp_path: Path) -> Cached:
    """Entered by the test itself: a task group belongs to the task that opened it."""
    return Cached(tmp_path)


async def turns(count: int = 5) -> None:
    """Let everything that can go on without the test go on."""
    for _ in range(count):
        await asyncio.sleep(0)


# What is kept, and how long


async def test_an_answer_is_given_as_it_was_found(cached: Cached) -> None:
    async with cached.cache:
        assert await cached.resolve() == ANSWER


async def test_an_answer_is_kept_as_long_as_it_is_good_and_no_longer(cached: Cached) -> None:
    async with cached.cache:
        await cached.resolve()
        cached.clock.now += 59.9
        assert await cached.resolve() == ANSWER
        assert cached.lookup.asked[NAME.text] == 1
        cached.clock.now += 0.1
        await cached.resolve()
        assert cached.lookup.asked[NAME.text] == 2


async def test_time_counts_from_the_answer_and_not_from_the_last_use(cached: Cached) -> None:
    async with cached.cache:
        for _ in range(4):
            await cached.resolve()
            cached.clock.now += 20
        assert cached.lookup.asked[NAME.text] == 2


async def test_a_new_answer_takes_the_place_of_the_old_one(cached: Cached) -> None:
    other = Answer((ip_address("192.0.2.2"),))
    async with cached.cache:
        await cached.resolve()
        cached.lookup.found = Found(other, 60.0)
        cached.clock.now += 61
        assert await cached.resolve() == other
        assert await cached.resolve() == other


@pytest.mark.parametrize("ttl_s", [0.0, -1.0])
async def test_an_answer_that_must_not_be_kept_is_not(cached: Cached, ttl_s: float) -> None:
    cached.lookup.found = Found(ANSWER, ttl_s)
    async with cached.cache:
        for _ in range(3):
            assert await cached.resolve() == ANSWER
    assert cached.lookup.asked[NAME.text] == 3


async def test_a_missing_name_is_remembered_for_its_time(cached: Cached) -> None:
    cached.lookup.found = Found(Answer(()), 2.0, "the name does not exist")
    async with cached.cache:
        for _ in range(3):
            with pytest.raises(NoSuchName, match="the name does not exist"):
                await cached.resolve()
        assert cached.lookup.asked[NAME.text] == 1
        cached.lookup.found = FOUND
        cached.clock.now += 2
        assert await cached.resolve() == ANSWER


async def test_a_server_that_was_late_may_be_asked_again_at_once(cached: Cached) -> None:
    cached.lookup.found = Found(Answer(()), 0.0, "no DNS server answered in time", timed_out=True)
    async with cached.cache:
        with pytest.raises(ResolverTimeout, match="no DNS server answered in time"):
            await cached.resolve()
        cached.lookup.found = FOUND
        assert await cached.resolve() == ANSWER


async def test_names_are_kept_apart(cached: Cached) -> None:
    async with cached.cache:
        await cached.resolve("a.example")
        await cached.resolve("b.example")
    assert cached.lookup.asked == {"a.example": 1, "b.example": 1}


async def test_so_many_names_are_kept_and_the_oldest_go_first(
    cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_cache, "CACHE_NAMES", 10)
    async with cached.cache:
        for number in range(30):
            await cached.resolve(f"n{number}.example")
        for number in range(29, -1, -1):
            await cached.resolve(f"n{number}.example")
    assert [cached.lookup.asked[f"n{number}.example"] for number in (29, 20, 19, 0)] == [1, 1, 2, 2]


async def test_what_must_not_be_kept_takes_the_place_of_nothing(
    cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_cache, "CACHE_NAMES", 2)
    async with cached.cache:
        await cached.resolve()
        cached.lookup.found = Found(ANSWER, 0.0)
        for number in range(5):
            await cached.resolve(f"n{number}.example")
        await cached.resolve()
    assert cached.lookup.asked[NAME.text] == 1


# Without waiting


async def test_what_is_known_is_ready_and_nothing_is_asked(cached: Cached) -> None:
    async with cached.cache:
        assert cached.cache.ready(NAME) is None
        assert cached.lookup.asked.total() == 0
        await cached.resolve()
        assert cached.cache.ready(NAME) == ANSWER
        cached.clock.now += 60
        assert cached.cache.ready(NAME) is None
        cached.hosts_path.write_text("192.0.2.7 ok.example\n")
        assert cached.cache.ready(NAME) == Answer((ip_address("192.0.2.7"),))
        assert cached.lookup.asked.total() == 1


async def test_a_failure_is_never_ready(cached: Cached) -> None:
    """Who waits is told why; an answer without addresses would not say it."""
    cached.lookup.found = Found(Answer((), ("alias.example",)), 60.0, "the name has no addresses")
    async with cached.cache:
        with pytest.raises(NoSuchName):
            await cached.resolve()
        assert cached.cache.ready(NAME) is None


# The machine's own names


async def test_what_the_hosts_file_settles_is_asked_of_nobody(cached: Cached) -> None:
    cached.hosts_path.write_text("192.0.2.7 ok.example\n")
    async with cached.cache:
        assert await cached.resolve() == Answer((ip_address("192.0.2.7"),))
        assert (await cached.resolve("localhost")).addresses == (ip_address("127.0.0.1"), ip_address("::1"))
        assert cached.lookup.asked.total() == 0
        cached.hosts_path.write_text("")
        assert await cached.resolve() == ANSWER


async def test_the_hosts_file_counts_before_what_was_kept(cached: Cached) -> None:
    async with cached.cache:
        await cached.resolve()
        cached.hosts_path.write_text("192.0.2.7 ok.example\n")
        assert await cached.resolve() == Answer((ip_address("192.0.2.7"),))


# One lookup for all who ask


async def test_fifty_at_once_share_one_lookup(cached: Cached) -> None:
    async with cached.cache, asyncio.TaskGroup() as group:
        tasks = [group.create_task(cached.resolve("slow.example")) for _ in range(50)]
        await turns()
        cached.lookup.go.set()
    assert [task.result() for task in tasks] == [ANSWER] * 50
    assert cached.lookup.asked == {"slow.example": 1}


@pytest.mark.parametrize("leaving", [0, 1, 2])
async def test_who_leaves_does_not_end_the_lookup_of_the_others(cached: Cached, leaving: int) -> None:
    async with cached.cache, asyncio.TaskGroup() as group:
        tasks = [group.create_task(cached.resolve("slow.example")) for _ in range(3)]
        await turns()
        tasks[leaving].cancel()
        await turns()
        cached.lookup.go.set()
    assert tasks[leaving].cancelled()
    assert [task.result() for task in tasks if not task.cancelled()] == [ANSWER] * 2
    assert cached.lookup.asked == {"slow.example": 1}


async def test_a_lookup_that_nobody_waits_for_ends(cached: Cached) -> None:
    """Else a client that invents names and gives up fills memory, and real siblings wait for ever."""
    async with cached.cache:
        before = asyncio.all_tasks()
        asked = LOOKUPS_PER_PARENT + 50  # some run, some wait for their turn
        for number in range(asked):
            task = asyncio.get_running_loop().create_task(cached.resolve(f"n{number}.slow.example"))
            await turns(2)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await turns()
        assert asyncio.all_tasks() == before
        assert cached.lookup.running == set()


@pytest.mark.parametrize("pause", range(5))
async def test_a_name_that_was_given_up_can_be_asked_again(cached: Cached, pause: int) -> None:
    async with cached.cache:
        task = asyncio.get_running_loop().create_task(cached.resolve("slow.example"))
        await turns(pause)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await turns(pause)
        cached.lookup.go.set()
        assert await cached.resolve("slow.example") == ANSWER


@pytest.mark.parametrize("pause", range(4))
async def test_who_comes_just_as_the_last_one_leaves_gets_an_answer(cached: Cached, pause: int) -> None:
    async with cached.cache, asyncio.TaskGroup() as group:
        first = group.create_task(cached.resolve("slow.example"))
        await turns()
        first.cancel()
        await turns(pause)
        second = group.create_task(cached.resolve("slow.example"))
        await turns()
        cached.lookup.go.set()
    assert second.result() == ANSWER


# Turns


async def test_slow_names_below_one_parent_do_not_hold_up_another(cached: Cached) -> None:
    async with cached.cache, asyncio.TaskGroup() as group:
        for number in range(LOOKUPS_IN_ALL + LOOKUPS_PER_PARENT):
            group.create_task(cached.resolve(f"n{number}.slow.example"))
        await turns()
        assert await cached.resolve("quick.other.example") == ANSWER
        cached.lookup.go.set()


@pytest.mark.parametrize("parent", ["slow.co.uk", "slow.com.au", "slow.ac.jp"])
async def test_slow_names_of_one_owner_do_not_hold_up_others_below_the_same_suffix(
    parent: str, cached: Cached
) -> None:
    async with cached.cache, asyncio.TaskGroup() as group:
        for number in range(LOOKUPS_PER_PARENT * 2):
            group.create_task(cached.resolve(f"n{number}.{parent}"))
        await turns()
        assert await cached.resolve(parent.replace("slow", "quick")) == ANSWER
        cached.lookup.go.set()


@pytest.mark.parametrize("parent", ["t.co", "sap.de", "x.y"])
async def test_slow_names_below_a_short_domain_do_not_hold_up_the_others(parent: str, cached: Cached) -> None:
    """It looks like a suffix, so that each name invented below it looks like an owner of its own."""
    async with cached.cache, asyncio.TaskGroup() as group:
        for number in range(LOOKUPS_IN_ALL + 50):
            group.create_task(cached.resolve(f"slow{number}.{parent}"))
        await turns()
        assert await cached.resolve("quick.other.example") == ANSWER
        cached.lookup.go.set()


@pytest.mark.parametrize("parent", ["slow.example", "slow.de", "slow.co.uk"])
async def test_so_many_lookups_run_below_one_parent_and_the_rest_have_their_turn(
    parent: str, cached: Cached
) -> None:
    async with cached.cache, asyncio.TaskGroup() as group:
        names = [f"a.b{number}.{parent}" for number in range(5 * LOOKUPS_PER_PARENT)]
        tasks = [group.create_task(cached.resolve(name)) for name in names]
        await turns()
        assert len(cached.lookup.running) == LOOKUPS_PER_PARENT
        cached.lookup.go.set()
    assert [task.result() for task in tasks] == [ANSWER] * len(names)
    assert cached.lookup.asked == dict.fromkeys(names, 1)


async def test_so_many_lookups_run_in_all(cached: Cached) -> None:
    async with cached.cache, asyncio.TaskGroup() as group:
        for number in range(LOOKUPS_IN_ALL + 50):
            group.create_task(cached.resolve(f"a.slow{number}.example"))
        await turns()
        assert len(cached.lookup.running) == LOOKUPS_IN_ALL
        cached.lookup.go.set()
    assert cached.lookup.most == LOOKUPS_IN_ALL


# The end


async def test_lookups_end_with_their_owner(cached: Cached) -> None:
    before = asyncio.all_tasks()
    with contextlib.ExitStack() as stack:
        async with cached.cache:
            tasks = [
                asyncio.get_running_loop().create_task(cached.cache.resolve(Name(f"n{number}.slow.example")))
                for number in range(LOOKUPS_PER_PARENT + 5)
            ]
            await turns()
            stack.callback(lambda: [task.cancel() for task in tasks])
        assert cached.lookup.running == set()
        assert all(isinstance(ended, asyncio.CancelledError) for ended in await outcomes(tasks))
    assert asyncio.all_tasks() == before


async def outcomes(tasks: list[asyncio.Task[Answer]]) -> list[Answer | BaseException]:
    async with asyncio.timeout(SOON_S):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_owner_that_fails_fails_as_itself(cached: Cached) -> None:
    async def own() -> None:
        async with cached.cache:
            await cached.resolve()
            raise RuntimeError("the owner")

    with pytest.raises(RuntimeError, match="the owner"):
        await own()


async def test_a_lookup_with_a_fault_ends_neither_the_owner_nor_other_lookups(cached: Cached) -> None:
    class Faulty(ScriptedLookup):
        async def __call__(self, name: Name) -> Found:
            found = await super().__call__(name)
            if name.text.startswith("faulty"):
                raise RuntimeError("a fault of ours")
            return found

    lookup = Faulty()
    async with NameCache(lookup, HostsFile(cached.hosts_path), cached.clock) as cache:
        loop = asyncio.get_running_loop()
        faulty = [loop.create_task(cache.resolve(Name("faulty.slow.example"))) for _ in range(2)]
        sound = loop.create_task(cache.resolve(Name("sound.slow.example")))
        await turns()
        lookup.go.set()
        assert [str(fault) for fault in await outcomes(faulty)] == ["a fault of ours"] * 2
        assert await outcomes([sound]) == [ANSWER]
        assert await cache.resolve(NAME) == ANSWER
