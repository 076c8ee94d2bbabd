"""All sandboxes that are attached: greets each, takes its listener, and ends what is its when it ends.

One connection is one sandbox. No task and no wait for one that is idle; every other wait has a limit. Next:
core/attach.py (what is said), attach_socket.py (how), sandbox_ledger.py (what a sandbox did).
"""

import asyncio
import contextlib
import enum
import itertools
import socket
from collections import Counter
from collections.abc import Callable

from egress_proxy.core.access import Client
from egress_proxy.core.attach import (
    HAND_OUT,
    LINE_LIMIT,
    SANDBOX_PREFIX,
    TAKEN,
    AttachError,
    Hello,
    Refused,
    Welcome,
    encode_answer,
    encode_report,
    parse_hello,
)
from egress_proxy.core.events import Event, SandboxChanged
from egress_proxy.core.host import Target
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.attach_socket import Received, adopt, is_within_reach, receive
from egress_proxy.proxy.ended_grants import EndedGrants
from egress_proxy.proxy.listener import Intake, connection_limit
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.peer import Owner, is_own_user, owner_of
from egress_proxy.proxy.sandbox_ledger import SandboxLedger

# More commands at once than any machine runs; each keeps two descriptors here.
SANDBOX_LIMIT = 1000
# Of the places for clients at most this part is taken by sandboxes, so that theirs have room.
_SHARE = 4
# How long a caller that has ended its sandbox may take to read the report.
REPORT_S = 5.0
# How often the log hears of one other user who tries to attach.
TOLD_AGAIN_S = 60.0


class _Stage(enum.Enum):
    """What is waited for."""

    HELLO = enum.auto()
    LISTENER = enum.auto()
    END = enum.auto()
    NOTHING = enum.auto()


class _Attachment:
    """One connection. ``client``, ``ledger`` once it was welcomed, ``listener`` once taken; ``own``: where
    we must not dial because of it."""

    __slots__ = ("client", "heard", "ledger", "listener", "own", "pid", "sock", "stage", "timer", "unsent")

    def __init__(self, sock: socket.socket, pid: int | None) -> None:
        self.sock = sock
        self.pid = pid
        self.stage = _Stage.HELLO
        self.heard = b""
        self.unsent = b""
        self.ledger = SandboxLedger()
        self.client: Client | None = None
        self.listener: socket.socket | None = None
        self.own: Counter[Target] = Counter()
        self.timer: asyncio.TimerHandle | None = None


class Attachments:
    """`admit` takes a new connection to the attach socket; `close` ends all, with their reports."""

    def __init__(
        self,
        parts: Parts,
        intake: Intake,
        own: Counter[Target],
        port: int,
        end_client: Callable[[Client], None],
        is_draining: Callable[[], bool],
    ) -> None:
        """``own``: what is never dialled; ``port``: the data port; ``end_client``: cuts all that is its."""
        self._loop = asyncio.get_running_loop()
        self._parts = parts
        self._intake = intake
        self._ended_grants = EndedGrants(parts.audit)
        self._own = own
        self._port = port
        self._end_client = end_client
        self._is_draining = is_draining
        self._limit = max(1, min(SANDBOX_LIMIT, connection_limit() // _SHARE))
        self._numbers = itertools.count(1)
        self._all: set[_Attachment] = set()
        self._told_again_at: dict[int, float] = {}  # by user, the loop's clock

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, sock: socket.socket, address: object) -> None:
        """A connection was accepted; for `Intake.listen`."""
        owner = owner_of(sock)
        sock.setblocking(False)
        if owner is not None and not is_own_user(owner):
            self._turn_away(sock, owner)
            return
        # Beyond the limit some are heard out, to be told so.
        if len(self._all) >= 2 * self._limit:
            sock.close()
            return
        one = _Attachment(sock, owner.pid if owner else None)
        self._all.add(one)
        self._loop.add_reader(sock, self._on_readable, one)
        self._give(one, self._parts.limits.head_s)

    def _turn_away(self, sock: socket.socket, owner: Owner) -> None:
        """Another user's, told before a word is heard of it."""
        with contextlib.suppress(OSError):
            sock.send(encode_answer(Refused("it takes those of its own user alone")))
        sock.close()
        # Once a minute: whoever may knock as often as he likes must not fill the log.
        if self._loop.time() >= self._told_again_at.get(owner.uid, 0.0):
            self._told_again_at[owner.uid] = self._loop.time() + TOLD_AGAIN_S
            self._write_down(SandboxChanged(Client(), f"refused: of user {owner.uid}", owner.pid))

    def close(self) -> None:
        """The service has stopped, and all tunnels have been ended."""
        for one in list(self._all):
            if one.stage is _Stage.END:
                self._cut(one)
            if one.stage is _Stage.NOTHING and not one.unsent:
                self._report(one)
            self._drop(one)
        self._ended_grants.finish()

    # What is heard.

    def _on_readable(self, one: _Attachment) -> None:
        room = LINE_LIMIT + 1 - len(one.heard) if one.stage is _Stage.HELLO else len(HAND_OUT) + 1
        try:
            received = receive(one.sock, room)
        except BlockingIOError:
            return
        except OSError:
            received = Received(b"")
        if one.stage is _Stage.LISTENER and _is_hand_out(received):
            self._take(one, received.descriptors[0])
            return
        received.close()
        if one.stage is _Stage.END and not received.octets:
            self._cut(one)
            # In the next turn of the loop: what its tunnels carried is written down by then.
            self._loop.call_soon(self._report, one)
        elif one.stage is _Stage.HELLO and received.octets and not received.descriptors:
            self._hear_hello(one, received.octets)
        else:
            self._drop(one)

    def _hear_hello(self, one: _Attachment, octets: bytes) -> None:
        one.heard += octets
        if b"\n" not in one.heard and len(one.heard) <= LINE_LIMIT:
            return
        try:
            self._welcome(one, parse_hello(one.heard))
        except AttachError as error:
            self._say(one, encode_answer(Refused(str(error))))
            self._drop(one)

    def _welcome(self, one: _Attachment, hello: Hello) -> None:
        if self._is_draining():
            raise AttachError("the proxy is stopping")
        living = self._parts.sandboxes.living
        if len(living) >= self._limit:
            raise AttachError(f"{len(living)} sandboxes are attached, and no more may be; try again later")
        one.client = Client(f"{SANDBOX_PREFIX}{next(self._numbers)}", hello.label)
        living[one.client.id] = one.ledger
        one.stage = _Stage.LISTENER
        self._give(one, self._parts.limits.head_s)
        # To a peer of the same user, who can read them anyway; the command is not there yet.
        own = self._parts.in_force.own if hello.names else None
        self._say(one, encode_answer(Welcome(one.client.id, self._port, own)))

    def _take(self, one: _Attachment, descriptor: int) -> None:
        try:
            one.listener, target = adopt(descriptor)
        except AttachError:
            self._drop(one)
            return
        # Nothing may pass unrecorded, and a service that stops lets nobody in.
        if one.client is None or self._is_draining() or not self._record(one, "attached"):
            self._drop(one)
            return
        one.stage = _Stage.END
        self._stop_timer(one)
        if is_within_reach(one.listener):
            one.own[target] += 1
        self._own.update(one.own)
        self._intake.listen_for(one.client, one.listener)
        self._say(one, TAKEN)

    # What is said.

    def _say(self, one: _Attachment, words: bytes) -> None:
        """A few bytes: whoever has no room for them is as good as gone."""
        with contextlib.suppress(OSError):
            if one.sock.send(words) == len(words):
                return
        self._drop(one)

    def _report(self, one: _Attachment) -> None:
        if one not in self._all:
            return
        self._settle(one)
        one.unsent = encode_report(one.ledger.report())
        self._give(one, REPORT_S)
        self._loop.add_writer(one.sock, self._send_on, one)
        self._send_on(one)

    def _send_on(self, one: _Attachment) -> None:
        try:
            one.unsent = one.unsent[one.sock.send(one.unsent) :]
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more
            one.unsent = b""
        if not one.unsent:
            self._forget(one)

    # How it ends.

    def _give(self, one: _Attachment, limit_s: float) -> None:
        """So long it may take; then it is dropped."""
        self._stop_timer(one)
        one.timer = self._loop.call_later(limit_s, self._drop, one)

    def _stop_timer(self, one: _Attachment) -> None:
        if one.timer is not None:
            one.timer.cancel()

    def _drop(self, one: _Attachment) -> None:
        """Without a report: it broke off, took too long, or said what it should not."""
        if one in self._all:
            self._cut(one)
            self._settle(one)
            self._forget(one)

    def _cut(self, one: _Attachment) -> None:
        """Nobody comes in any more, and whoever is in is ended."""
        if one.stage is _Stage.NOTHING:
            return
        if one.stage is _Stage.END:
            self._own -= one.own  # and forgets what is at zero
        one.stage = _Stage.NOTHING
        self._loop.remove_reader(one.sock)
        if one.listener is not None:
            self._intake.stop_listening(one.listener)
            one.listener.close()
        if one.client is not None:
            self._end_client(one.client)

    def _settle(self, one: _Attachment) -> None:
        """The client is no more, and the grants that were made for it go with it."""
        client = one.client
        if client is None or self._parts.sandboxes.living.pop(client.id, None) is None:
            return
        grants = self._parts.grants
        its_own = [grant for grant in grants.snapshot().by_id.values() if grant.rule.client == client.id]
        grants.drop([grant.id for grant in its_own])
        self._ended_grants.tell(its_own, "sandbox ended")
        if one.listener is not None:
            self._record(one, "detached")

    def _forget(self, one: _Attachment) -> None:
        self._all.discard(one)
        self._stop_timer(one)
        self._loop.remove_writer(one.sock)
        one.sock.close()

    def _record(self, one: _Attachment, change: str) -> bool:
        return self._write_down(SandboxChanged(one.client or Client(), change, one.pid))

    def _write_down(self, event: Event) -> bool:
        try:
            self._parts.audit(event)
        except AuditUnavailable:
            return False
        return True


def _is_hand_out(received: Received) -> bool:
    """Exactly the byte, with exactly one descriptor."""
    return received.octets == HAND_OUT and len(received.descriptors) == 1 and not received.cut
