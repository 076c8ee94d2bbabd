"""Runs the battery against one sandbox as whoever starts it, and prints each verdict, as JSON.

    python3 -I bench.py '{"backend": "bwrap", "form": "portable", "folder": "/srv/x", …}'

A script, since the ordinary user's half runs with an interpreter and a copy of the code that this user can
read. Next: places.py (starts it), child.py (what it starts), sandboxes.py (how), evidence.py (the verdicts).
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from egress_proxy.sandbox.planted import planted, snapshot
from egress_proxy.sandbox.spec import Egress, NoNetwork, SandboxSpec, ThroughProxy
from tests.end_to_end.escape.attempts import Attempt, Ground, Kind, Missing, Setting, Witness
from tests.end_to_end.escape.battery import BATTERY
from tests.end_to_end.escape.child import RETURNED
from tests.end_to_end.escape.ground import PATH_IN_ROOT, Grounds
from tests.end_to_end.escape.run import Seen, fault, run
from tests.end_to_end.escape.sandboxes import Form, Sandbox
from tests.end_to_end.escape.stand_in import StandInProxy

_CHILD = str(Path(__file__).resolve().with_name("child.py"))
_PATH = "/usr/local/bin:/usr/bin:/bin"
# In one sandbox, where its start costs more than all of them; few enough for one to be found soon.
_BATCH = 24
# What changes the root, or the life of the sandbox, is not tried beside others.
_ALONE = frozenset({Kind.PERSIST, Kind.LIFE})


class Verdict(enum.StrEnum):
    BLOCKED = "blocked"
    ESCAPED = "escaped"
    OK = "ok"  # of a control
    BROKEN = "broken"  # of a control that did not work, or an attempt that could not be made
    SKIPPED = "skipped"  # it takes something that is not here


SILENT = "; not reported"
_QUIET = frozenset({Verdict.BLOCKED, Verdict.OK, Verdict.SKIPPED})
Verdicts = Mapping[str, tuple[Verdict, str]]


@dataclass(frozen=True, slots=True)
class Order:
    """What to run. ``folder``: empty, for the ground. ``only``: these attempts; ``alone``: not in a batch,
    since they are known to get out. ``attach``, ``token``, ``ports``: of a real proxy, instead of a stand-in.
    ``program``: how `egress-proxy` is started, for Form.PRINTED.
    """

    folder: str
    backend: str = ""
    form: Form = Form.NONE
    through_proxy: bool = False
    abi: int | None = None
    interactive: bool = False
    only: Sequence[str] = ()
    alone: Sequence[str] = ()
    attach: str | None = None
    token: str | None = None
    ports: Mapping[str, int] = field(default_factory=dict)
    program: Sequence[str] = ()


class Bench:
    """One sandbox after another on the same ground, each for one attempt or for a batch."""

    def __init__(self, order: Order, grounds: Grounds) -> None:
        self._order = order
        self._grounds = grounds
        self._interpreter = os.path.realpath(sys.executable)
        self._sandbox = Sandbox(order.backend, Form(order.form), order.abi, tuple(order.program))
        self._spec = SandboxSpec(
            roots=(grounds.root,),
            egress=self._egress(),
            cwd=grounds.root,
            homes=(grounds.home,),
            interactive=order.interactive,
        )

    def _egress(self) -> Egress:
        if not self._order.through_proxy:
            return NoNetwork()
        return ThroughProxy(self._grounds.sockets["attach"], self._grounds.ports["proxy"])

    def run(self, attempts: Sequence[Attempt]) -> Verdicts:
        """A batch counts when nothing got out of it and nothing is broken; else each is made by itself, so
        that none can spoil or answer for another."""
        verdicts = self._run_once(attempts)
        if len(attempts) == 1 or all(verdict in _QUIET for verdict, _ in verdicts.values()):
            return verdicts
        return {name: found for one in attempts for name, found in self._run_once([one]).items()}

    def _run_once(self, attempts: Sequence[Attempt]) -> Verdicts:
        setting = attempts[0].setting
        self._grounds.reset()
        if setting is Setting.PLANTED:
            self._grounds.plant()
        ground = self._grounds.view(through_proxy=self._order.through_proxy)
        names = ",".join(attempt.name for attempt in attempts)
        command = (self._interpreter, "-I", "-B", _CHILD, names, json.dumps(asdict(ground)))
        before = snapshot(self._spec.roots)
        with self._sandbox.around(command, self._spec, self._environment(setting)) as started:
            seen = run(started, setting, self._grounds)
        arrived = self._grounds.listeners.take() | seen.arrived
        witness = self._witness(ground, seen, arrived)
        verdicts = {attempt.name: _judge(attempt, seen, witness) for attempt in attempts}
        if attempts[0].kind is Kind.PERSIST:
            reported = planted(self._spec.roots, before).paths
            return {name: _with_report(found, reported) for name, found in verdicts.items()}
        return verdicts

    def _environment(self, setting: Setting) -> Mapping[str, str]:
        own = f"{self._grounds.root}/{PATH_IN_ROOT}:" if setting is Setting.PLANTED else ""
        return {
            "PATH": own + _PATH,
            "HOME": self._grounds.home,
            "LANG": "C.UTF-8",
            "CONTROL_TOKEN": self._grounds.token,
        }

    def _witness(self, ground: Ground, seen: Seen, arrived: frozenset[str]) -> Witness:
        return Witness(
            ground=ground,
            outcomes=seen.lines,
            out_names=self._grounds.out_names,
            arrived=arrived,
            victim_gone=self._grounds.victim.is_gone(),
            typed=seen.typed,
            lock_held=seen.lock_held,
            signal=max(-seen.code, seen.code - 128, 0),
        )


def _judge(attempt: Attempt, seen: Seen, witness: Witness) -> tuple[Verdict, str]:
    outcome, words = seen.lines.get(attempt.name, ("", ""))
    line = f"{outcome} {words}".strip()
    if attempt.kind is Kind.CONTROL:
        good = {RETURNED: Verdict.OK, Missing.__name__: Verdict.SKIPPED}
        return good.get(outcome, Verdict.BROKEN), line or seen.errors
    if evidence := attempt.evidence(witness, attempt.name):
        return Verdict.ESCAPED, evidence
    if why := fault(seen, attempt.name):
        return Verdict.BROKEN, why
    return Verdict.SKIPPED if outcome == Missing.__name__ else Verdict.BLOCKED, line


def _with_report(found: tuple[Verdict, str], reported: Sequence[str]) -> tuple[Verdict, str]:
    """What was left behind, and whether the user is told."""
    verdict, detail = found
    return verdict, detail if verdict is not Verdict.ESCAPED or reported else f"{detail}{SILENT}"


def batches(order: Order) -> Iterator[list[Attempt]]:
    """All that is to be tried; what can share a sandbox, together."""
    wanted = [
        attempt
        for attempt in BATTERY.values()
        if (not order.only or attempt.name in order.only)
        and not (order.form == Form.NONE and attempt.only_confined)
    ]
    alone = [attempt for attempt in wanted if _runs_alone(attempt, order)]
    yield from ([attempt] for attempt in alone)
    shared = (attempt for attempt in wanted if attempt not in alone)
    while batch := list(itertools.islice(shared, _BATCH)):
        yield batch


def _runs_alone(attempt: Attempt, order: Order) -> bool:
    special = attempt.setting is not Setting.PLAIN or attempt.only_confined or attempt.kind in _ALONE
    return special or attempt.name in order.alone or order.form == Form.NONE


def verdicts(order: Order) -> Verdicts:
    with contextlib.ExitStack() as stack:
        grounds = stack.enter_context(Grounds(order.folder, os.path.realpath(sys.executable)))
        grounds.take_real(order.ports, order.attach, order.token)
        if order.through_proxy and order.attach is None:
            path = f"{order.folder}/attach.sock"
            stack.enter_context(StandInProxy(path, grounds.ports["proxy"]))
            grounds.take_real({}, path, None)
        bench = Bench(order, grounds)
        return {name: found for batch in batches(order) for name, found in bench.run(batch).items()}


if __name__ == "__main__":
    print(json.dumps(verdicts(Order(**json.loads(sys.argv[1])))))
