"""Questions at the terminal: one for a target, a yes is a grant of that client, everything else is a no."""

import asyncio
import os
import re
import termios
import tty
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from egress_proxy.cli.ask import TerminalAsker
from egress_proxy.cli.ask_terminal import QuestionTerminal
from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow, Decision, Deny, Reason
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
        self.keyboard, self.line = os.openpty()
        self.grants = MemoryGrantStore(lambda: 1.0, lambda: 1.0)
        self.terminal = QuestionTerminal(self.line, is_dumb=True)
        self.ask = TerminalAsker(self.terminal, timeout_s, self.grants, self._judge)

    def _judge(self, one: Access) -> Allow | Deny:
        return decide(one, HOLD, self.grants.snapshot(), 1.0)  # type: ignore[return-value]

    def types(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    def sees(self, pattern: str, times: int = 1) -> str:
        """Reads on until it has: the terminal hands out what it has in pieces. Answers the first group."""
        seen = ""
        while len(found := re.findall(pattern, seen)) < times:
            seen += os.read(self.keyboard, 4096).decode()
        return str(found[0])

    async def answers(self, answer: str, about: Access) -> Decision:
        """Reads the question, then types; ``CODE`` stands for the one that is in it."""
        async with asyncio.TaskGroup() as group:
            decision = group.create_task(self.ask(about))
            code = await asyncio.to_thread(self.sees, r"`once (\d{4})` for one connection")
            self.types(answer.replace("CODE", code) + "\n")
        return decision.result()

    def close(self) -> None:
        os.close(self.keyboard)
        os.close(self.line)


@pytest.fixture
def person() -> Iterator[Person]:
    one = Person()
    yield one
    one.close()


@pytest.mark.parametrize("answer", ["allow CODE", "  allow   CODE "])
async def test_the_word_of_the_question_holds_for_this_run(person: Person, answer: str) -> None:
    first = await person.answers(answer, access())
    assert isinstance(first, Allow)
    assert first.grant_id is not None
    assert await person.ask(access()) == first  # nothing was typed for it


async def test_once_admits_one_connection(person: Person) -> None:
    first = await person.answers("once CODE", access())
    assert isinstance(first, Allow)
    assert first.grant_id is not None
    person.grants.spend_use(first.grant_id)
    assert await person.answers("", access()) == Deny(Reason.APPROVAL_DENIED, access().target)


NOES = [
    "n",
    "",
    "y",
    "yes",
    "allow",
    "CODE",
    "allow CODE CODE",
    "allow xCODE",
    "allowCODE",
    "allow -1",
    "\x1b[A",
]


@pytest.mark.parametrize("answer", NOES)
async def test_everything_else_is_a_no_for_this_run(person: Person, answer: str) -> None:
    refused = Deny(Reason.APPROVAL_DENIED, access().target)
    assert await person.answers(answer, access()) == refused
    person.sees("a.test:443 is refused for this run")
    assert await person.ask(access()) == refused


async def test_a_yes_is_for_that_client_and_port_alone(person: Person) -> None:
    await person.answers("allow CODE", access())
    for other in (access(client=Client("sandbox-2")), access(port=80), access("b.test")):
        assert isinstance(await person.answers("n", other), Deny)


async def test_connections_to_one_target_share_a_question(person: Person) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(person.answers("allow CODE", access()))
        others = [group.create_task(person.ask(access())) for _ in range(4)]
    assert isinstance(first.result(), Allow)
    assert {one.result() for one in others} == {first.result()}


@pytest.mark.parametrize("early", ["y\n", "allow 1234\n" * 50, "half a line"])
async def test_what_was_typed_before_the_question_is_no_answer(person: Person, early: str) -> None:
    person.types(early)
    assert isinstance(await person.answers("allow CODE", access()), Allow)


async def test_words_differ_from_question_to_question(person: Person) -> None:
    codes = set()
    for port in range(1, 6):
        async with asyncio.TaskGroup() as group:
            group.create_task(person.ask(access(port=port)))
            codes.add(await asyncio.to_thread(person.sees, r"`once (\d{4})`"))
            person.types("\n")
    assert len(codes) > 1


@pytest.mark.parametrize("mode", ["raw", "cbreak", "no echo"])
async def test_beside_a_full_screen_program_nobody_is_asked_and_what_helps_is_named(
    person: Person, mode: str
) -> None:
    if mode == "raw":
        tty.setraw(person.line)
    elif mode == "cbreak":
        tty.setcbreak(person.line)
    else:
        modes = termios.tcgetattr(person.line)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(person.line, termios.TCSANOW, modes)
    denied = await person.ask(access())
    assert isinstance(denied, Deny)
    assert denied.reason is Reason.NOT_LISTED
    assert "full-screen program" in denied.detail
    assert "--allow a.test:443" in denied.detail


async def test_an_end_that_comes_is_a_no(person: Person) -> None:
    async with asyncio.TaskGroup() as group:
        decision = group.create_task(person.ask(access()))
        await asyncio.to_thread(person.sees, "which is not listed")
        person.terminal.give_up()
    assert decision.result() == Deny(Reason.APPROVAL_DENIED, access().target)


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
    literal = Access(SANDBOX, Target(ip_address("192.0.2.1"), 443), Door.TUNNEL)
    assert isinstance(await person.answers("allow CODE", literal), Allow)
