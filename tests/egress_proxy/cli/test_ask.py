"""Questions at the terminal: one for a target, a yes is a grant of that client, everything else is a no."""

import asyncio
import os
import tty
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from egress_proxy.cli.ask import TerminalAsker
from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.host import Name, Target
from egress_proxy.core.policy import OnMiss, Policy, decide
from egress_proxy.core.rule_index import RuleIndex
from egress_proxy.core.sni_policy import SniPolicy
from egress_proxy.proxy.grant_store import MemoryGrantStore

HOLD = Policy(RuleIndex(), RuleIndex(), (), OnMiss.HOLD, SniPolicy())
SANDBOX = Client("sandbox-1", "make")


def access(host: str = "a.test", client: Client = SANDBOX, port: int = 443) -> Access:
    return Access(client, Target(Name(host), port), Door.TUNNEL)


class Person:
    """Types at a terminal, and sees what is asked there."""

    def __init__(self, timeout_s: float = 20) -> None:
        self.keyboard, self._terminal = os.openpty()
        tty.setraw(self._terminal)
        self.grants = MemoryGrantStore(lambda: 1.0)
        self.ask = TerminalAsker(self._terminal, timeout_s, self.grants, self._judge)

    def _judge(self, one: Access) -> Allow | Deny:
        return decide(one, HOLD, self.grants.snapshot(), 1.0)  # type: ignore[return-value]

    def types(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    def sees(self, text: str, times: int = 1) -> None:
        """Reads on until it has: the terminal hands out what it has in pieces."""
        seen = ""
        while seen.count(text) < times:
            seen += os.read(self.keyboard, 4096).decode()
        assert seen.count(text) == times

    def close(self) -> None:
        os.close(self.keyboard)
        os.close(self._terminal)


@pytest.fixture
def person() -> Iterator[Person]:
    one = Person()
    yield one
    one.close()


@pytest.mark.parametrize("answer", ["y", "Y", "yes", " yes "])
async def test_yes_holds_for_this_run(person: Person, answer: str) -> None:
    person.types(f"{answer}\n")
    first = await person.ask(access())
    assert isinstance(first, Allow)
    assert first.grant_id is not None
    assert await person.ask(access()) == first  # nothing was typed for it
    person.sees("a.test:443, which is not listed")


async def test_once_admits_one_connection(person: Person) -> None:
    person.types("o\n")
    first = await person.ask(access())
    assert isinstance(first, Allow)
    assert first.grant_id is not None
    person.grants.spend_use(first.grant_id)
    person.types("n\n")
    assert await person.ask(access()) == Deny(Reason.APPROVAL_DENIED, access().target)


@pytest.mark.parametrize("answer", ["n", "", "no", "maybe", "yy", "\x1b[A"])
async def test_everything_else_is_a_no_for_this_run(person: Person, answer: str) -> None:
    person.types(f"{answer}\n")
    refused = Deny(Reason.APPROVAL_DENIED, access().target)
    assert await person.ask(access()) == refused
    assert await person.ask(access()) == refused


async def test_a_yes_is_for_that_client_and_port_alone(person: Person) -> None:
    person.types("y\n")
    await person.ask(access())
    for other in (access(client=Client("sandbox-2")), access(port=80), access("b.test")):
        person.types("n\n")
        assert isinstance(await person.ask(other), Deny)


async def test_connections_to_one_target_share_a_question(person: Person) -> None:
    person.types("y\n")
    answers = await asyncio.gather(*(person.ask(access()) for _ in range(5)))
    assert len(set(answers)) == 1
    assert isinstance(answers[0], Allow)
    person.sees("Allow it?")


async def test_no_answer_is_a_no_that_may_be_asked_again() -> None:
    person = Person(timeout_s=0.05)
    try:
        for _ in range(2):
            assert await person.ask(access()) == Deny(Reason.APPROVAL_TIMEOUT, access().target)
        person.sees("no answer within 0.05 s: refused", times=2)
    finally:
        person.close()


async def test_a_terminal_that_has_gone_says_no(person: Person) -> None:
    os.close(person.keyboard)
    person.keyboard = os.dup(0)
    assert isinstance(await person.ask(access()), Deny)


async def test_an_address_that_was_read_and_allowed_is_meant(person: Person) -> None:
    person.types("y\n")
    literal = Access(SANDBOX, Target(ip_address("192.0.2.1"), 443), Door.TUNNEL)
    assert isinstance(await person.ask(literal), Allow)
