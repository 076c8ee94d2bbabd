"""What each living sandbox reached and was refused, as the events tell it: the report that its caller gets.

Told by the audit sink, and only while a sandbox lives. Next: core/attach.py (Report), attachments.py (sends
it), core/events.py (what is told).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from egress_proxy.core.access import Door
from egress_proxy.core.attach import HOSTS_LIMIT, HostDenial, HostUse, Report
from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided, Ended, Event
from egress_proxy.core.host import Host, Target, host_text
from egress_proxy.core.reply import refusal_status

# What policy said no to, plain HTTP too; a name that does not exist or an upstream that is down is no denial.
_DENIALS = frozenset(reason for reason in Reason if refusal_status(reason) in (403, 405))


@dataclass(slots=True)
class _Use:
    connections: int = 0
    bytes_out: int = 0
    bytes_in: int = 0


@dataclass(slots=True)
class _Denial:
    times: int
    reason: Reason


@dataclass(slots=True)
class SandboxLedger:
    """One sandbox's. A destination is what the command named, also where a rule leads elsewhere."""

    _reached: dict[Target, _Use] = field(default_factory=dict)
    _denied: dict[Target, _Denial] = field(default_factory=dict)
    _injected: dict[Host, Target] = field(default_factory=dict)
    _dropped: int = 0

    def note(self, event: Decided | Ended) -> None:
        target = event.target
        if target is None:  # malformed: it names no destination
            return
        if isinstance(event, Ended):
            if event.door is not Door.TUNNEL:
                # It ends under the port that was dialled, and is listed under the one that was named.
                target = self._injected.get(target.host, target)
            use = self._reached.get(target)
            if use is not None:
                use.bytes_out += event.bytes_out
                use.bytes_in += event.bytes_in
        elif event.reason is None and (event.method != "CONNECT" or event.address is not None):
            if event.address is None:
                self._injected[target.host] = target
            self._reach(target)
        if event.reason in _DENIALS:
            self._deny(target, event.reason)

    def _reach(self, target: Target) -> None:
        use = self._reached.get(target)
        if use is None:
            if len(self._reached) >= HOSTS_LIMIT:
                self._dropped += 1
                return
            use = self._reached[target] = _Use()
        use.connections += 1

    def _deny(self, target: Target, reason: Reason) -> None:
        denial = self._denied.get(target)
        if denial is not None:
            denial.times += 1
            denial.reason = reason
        elif len(self._denied) < HOSTS_LIMIT:
            self._denied[target] = _Denial(1, reason)
        else:
            self._dropped += 1

    def report(self) -> Report:
        reached = tuple(
            HostUse(host_text(target.host), target.port, use.connections, use.bytes_out, use.bytes_in)
            for target, use in self._reached.items()
        )
        denied = tuple(
            HostDenial(host_text(target.host), target.port, denial.times, str(denial.reason))
            for target, denial in self._denied.items()
        )
        return Report(reached, denied, self._dropped)


class SandboxLedgers:
    """``living``: the ledgers of the sandboxes there are, by the ids of their clients."""

    def __init__(self) -> None:
        self.living: dict[str, SandboxLedger] = {}

    def note(self, events: Iterable[Event]) -> None:
        """For the audit sink, which asks only while somebody is ``living``."""
        for event in events:
            if isinstance(event, Decided | Ended):
                ledger = self.living.get(event.client.id)
                if ledger is not None:
                    ledger.note(event)
