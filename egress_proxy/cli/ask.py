"""Questions of `run --ask`: a person at the terminal says yes or no to hosts that no entry names.

A yes is a grant of this run, a no holds for it too; nothing is written down. Next: run.py (asks for it),
ask_terminal.py (the terminal), core/seams.py (Asker), proxy/connection.py (puts the questions).
"""

import asyncio
import secrets
from collections.abc import Callable

from egress_proxy.cli.ask_terminal import NobodyToAsk, QuestionTerminal
from egress_proxy.cli.output import shown
from egress_proxy.core.access import Access, Client
from egress_proxy.core.decision import Allow, Ask, Decision, Deny, Reason
from egress_proxy.core.grants import Limits
from egress_proxy.core.host import Target
from egress_proxy.core.rules import Rule, Scope
from egress_proxy.core.seams import Asker, GrantStore

_CODES = 10_000  # four digits

Judge = Callable[[Access], Decision]
"""decide() with what is in force: a grant that was just made counts."""
MakeAsker = Callable[[GrantStore, Judge], Asker]


class TerminalAsker:
    """An Asker. One question at a time, and one for a target however many connections wait for it."""

    def __init__(
        self, terminal: QuestionTerminal, timeout_s: float, grants: GrantStore, judge: Judge
    ) -> None:
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
        # What the command cannot have printed, so that no question of its own is answered with a yes to ours.
        code = f"{secrets.randbelow(_CODES):04}"
        question = (
            f"egress-proxy: the command asks for {shown(str(target))}, which is not listed, and waits.\r\n"
            f"Type `allow {code}` for this run, `once {code}` for one connection; anything else is a no: "
        )
        try:
            answer = await self._terminal.put(question, self._timeout_s)
        except NobodyToAsk as why:
            detail = f"nobody was asked, since {why}: start with --allow {target}"
            return Deny(Reason.NOT_LISTED, target, detail=detail)
        except TimeoutError:
            self._terminal.say(f"\r\nno answer within {self._timeout_s:g} s: refused\r\n")
            return Deny(Reason.APPROVAL_TIMEOUT, target)
        match answer.split():
            case ["allow", word] if word == code:
                return Limits()
            case ["once", word] if word == code:
                return Limits(max_uses=1)
            case _:
                self._terminal.say(f"egress-proxy: {shown(str(target))} is refused for this run\r\n")
                return Deny(Reason.APPROVAL_DENIED, target)
