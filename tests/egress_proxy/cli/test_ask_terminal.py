"""One question at a terminal: what is shown first, and how the terminal and its signals are meanwhile."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from egress_proxy.cli.ask_terminal import NobodyToAsk, QuestionTerminal


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    keyboard, line = os.openpty()
    yield keyboard, line
    os.close(keyboard)
    os.close(line)


async def shown(keyboard: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        seen += await asyncio.to_thread(os.read, keyboard, 4096)
    return seen


@pytest.mark.parametrize("is_dumb", [True, False])
async def test_a_terminal_that_a_command_has_left_unreadable_is_reset_first(
    pair: tuple[int, int], is_dumb: bool
) -> None:
    keyboard, line = pair
    terminal = QuestionTerminal(line, is_dumb=is_dumb)
    os.write(line, b"\x1b[8mhidden ")  # as a command would, to hide what follows
    async with asyncio.TaskGroup() as group:
        answer = group.create_task(terminal.put("Really?", 20))
        seen = await shown(keyboard, b"Really?")
        os.write(keyboard, b"yes\n")
    assert answer.result() == "yes\n"
    assert (b"\x1b[!p\x1b[0m\r\r\nReally?" in seen) is not is_dumb


async def test_a_suspension_waits_until_the_question_is_over(pair: tuple[int, int]) -> None:
    keyboard, line = pair
    async with asyncio.TaskGroup() as group:
        group.create_task(QuestionTerminal(line).put("Really?", 20))
        await shown(keyboard, b"Really?")
        assert signal.SIGTSTP in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        os.write(keyboard, b"\n")
    assert signal.SIGTSTP not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


async def test_another_job_keeps_the_terminal(pair: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.tcgetpgrp", lambda _: os.getpgrp() + 1)
    with pytest.raises(NobodyToAsk, match="another job has the terminal"):
        await QuestionTerminal(pair[1]).put("Really?", 20)


async def test_without_an_answer_in_time_it_says_so_to_who_asked(pair: tuple[int, int]) -> None:
    with pytest.raises(TimeoutError):
        await QuestionTerminal(pair[1]).put("Really?", 0.01)
