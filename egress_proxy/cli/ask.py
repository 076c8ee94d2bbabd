"""Questions of `run --ask`: a person at the terminal says yes or no to hosts that no entry names.

A yes is a grant of this run, a no holds for it too; nothing is written down. Next: run.py (asks for it),
core/seams.py (Asker), proxy/connection.py (puts the questions).
"""

import asyncio
import contextlib
import os
from collections.abc import Callable

from egress_proxy.cli.output import shown
from egress_proxy.core.access import Access, Client
from egress_proxy.core.decision import Allow, Ask, Decision, Deny, Reason
from egress_proxy.core.grants import Limits
from egress_proxy.core.host import Target
from egress_proxy.core.rules import Rule, Scope
from egress_proxy.core.seams import Asker, GrantStore

_LINE_BYTES = 256
_ONCE, _FOR_THIS_RUN = frozenset({"o", "once"}), frozenset({"y", "yes"})

Judge = Callable[[Access], Decision]
"""decide() with what is in force: a grant that was just made counts."""
MakeAsker = Callable[[GrantStore, Judge], Asker]


class TerminalAsker:
    """An Asker. One question at a time, and one for a target however many connections wait for it."""

    def __init__(self, terminal: int, timeout_s: float, grants: GrantStore, judge: Judge) -> None:
        """``terminal``: a descriptor of it, which stays the caller's."""
        self._terminal = terminal
        self._timeout_s = timeout_s
        self._grants = grants
        self._judge = judge
        self._asking = asyncio.Lock()
        self._refused: set[tuple[Client, Target]] = set()

    async def __call__(self, access: Access) -> Allow | Deny:
        about = (access.client, access.target)
        async with self._asking:
            if about in self._refused:
                return Deny(Reason.APPROVAL_DENIED, access.target)
            answered = self._judge(access)  # another connection may have got its yes meanwhile
            if not isinstance(answered, Ask):
                return answered
            limits = await self._ask(access.target)
            if isinstance(limits, Deny):
                if limits.reason is Reason.APPROVAL_DENIED:
                    self._refused.add(about)
                return limits
            target, client = access.target, access.client.id
            self._grants.add(
                Rule(Scope.EXACT, target.host, target.port, client=client, reason="asked"), limits
            )
            answer = self._judge(access)
            return Deny(Reason.APPROVAL_DENIED, target) if isinstance(answer, Ask) else answer

    async def _ask(self, target: Target) -> Limits | Deny:
        question = shown(f"the command asks for {target}, which is not listed")
        self._say(f"\r\negress-proxy: {question}. Allow it? [y]es for this run, [o]nce, [N]o: ")
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._line()
        except TimeoutError:
            self._say(f"\r\nno answer within {self._timeout_s:g} s: refused\r\n")
            return Deny(Reason.APPROVAL_TIMEOUT, target)
        match answer.strip().lower():
            case word if word in _FOR_THIS_RUN:
                return Limits()
            case word if word in _ONCE:
                return Limits(max_uses=1)
            case _:
                return Deny(Reason.APPROVAL_DENIED, target)

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._terminal, text.encode())

    async def _line(self) -> str:
        """The next line that is typed; "" when the terminal is gone, or belongs to another job."""
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[bytes] = loop.create_future()
        loop.add_reader(self._terminal, self._read, typed)
        try:
            return (await typed).decode("utf-8", "replace")
        finally:
            loop.remove_reader(self._terminal)

    def _read(self, typed: asyncio.Future[bytes]) -> None:
        try:
            line = os.read(self._terminal, _LINE_BYTES)
        except OSError:
            line = b""
        if not typed.done():
            typed.set_result(line)
