"""One confined command from its start to its typed end: what to spawn, and what became of it.

    with Confinement(choose(spec, path), spec, command, environment) as confinement:
        process = Popen(confinement.argv, env=confinement.env, pass_fds=confinement.pass_fds, …)
        confinement.started()
        outcome = confinement.finish(process.wait(), stderr_tail)

Spawning is the caller's, blocking or not. Next: choose.py (the rung), denial.py (reads the outcome).
"""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from egress_proxy.core.attach import Hello, Report, encode_hello
from egress_proxy.sandbox.attach_client import Attachment
from egress_proxy.sandbox.choose import Chosen, forget_verdicts
from egress_proxy.sandbox.denial import Ended, Outcome, outcome
from egress_proxy.sandbox.descriptors import Descriptors
from egress_proxy.sandbox.environment import (
    INHERITED_NAMES,
    NO_VARIABLES,
    SETTLED,
    SPAWNER_NAMES,
    WITHHELD_WORDS,
    NamedVariables,
    child_environment,
    plain_messages,
    proxy_variables,
)
from egress_proxy.sandbox.plan import isolated_python
from egress_proxy.sandbox.planted import Planted, Snapshot, planted, snapshot_of, with_programs
from egress_proxy.sandbox.roots import is_in
from egress_proxy.sandbox.set_group import take_set_group_off
from egress_proxy.sandbox.spec import SandboxSpec, SandboxUnavailable, ThroughProxy
from egress_proxy.sandbox.stderr_paths import Bounds

_OUTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "outer.py")
_CLOCK_STEP_NS = 20_000_000  # file times are set by a clock that is coarse
_WELCOME = b'{"attach":1,"client":'


def proxy_environment(spec: SandboxSpec) -> dict[str, str]:
    """The way to the proxy, where there is one. The same on every rung: the port is the proxy's own."""
    if not isinstance(spec.egress, ThroughProxy):
        return {}
    return proxy_variables(f"http://127.0.0.1:{spec.egress.port}", confined=True)


def portable_argv(
    chosen: Chosen,
    spec: SandboxSpec,
    command: Sequence[str],
    variables: Mapping[str, str],
    label: str = "",
    named: Sequence[str] = (),
) -> tuple[str, ...]:
    """A command line that whoever spawns it needs no library for. ``variables``: set besides the proxy's;
    ``named``: passed on from the spawner besides the harmless few and its settings."""
    settled = {name: value for name, value in SETTLED.items() if name not in named}
    words = chosen.recipe.on_command_line(
        (*INHERITED_NAMES, *SPAWNER_NAMES, *spec.extras, *named),
        {**settled, **proxy_environment(spec), "LC_MESSAGES": "C", **variables},
        encode_hello(Hello(label)),
        _WELCOME,
        WITHHELD_WORDS,
    )
    return (*isolated_python(_OUTER), *words, "--", *command)


@dataclass(frozen=True, slots=True)
class Finished:
    """``report``: what the proxy saw. ``egress_lost``: the proxy was gone when the command had ended."""

    outcome: Outcome
    report: Report | None
    egress_lost: bool


class Confinement:
    """``argv``, ``env``, ``pass_fds`` are for one spawn. Leaving the block ends the sandbox's egress."""

    def __init__(
        self,
        chosen: Chosen,
        spec: SandboxSpec,
        command: Sequence[str],
        parent: Mapping[str, str],
        label: str = "",
        named: NamedVariables = NO_VARIABLES,
    ) -> None:
        """Raises SandboxUnavailable when the proxy does not answer, ValueError for an extra variable that no
        child may have. ``named``: set or passed on besides, as a person asked for."""
        self.backend, self.gaps, self.enforcement = chosen.backend, chosen.gaps, chosen.enforcement
        self.passed_over = chosen.passed_over
        self._spec = spec
        self._started_ns = time.time_ns() - _CLOCK_STEP_NS
        self._terrain = chosen.terrain
        self._before = snapshot_of(self._terrain.scans) if spec.protect else Snapshot({}, complete=True)
        env = {**SETTLED, **child_environment(parent, proxy_environment(spec), spec.extras)}
        # At a terminal nobody reads along.
        plain = env if spec.interactive else plain_messages(env)
        passed_on = {name: parent[name] for name in named.names if name in parent}
        self.env = {**plain, **passed_on, **named.values}
        attach = chosen.recipe.attach
        self._attachment = None if attach is None else Attachment(attach, label or command[0])
        channel = None if self._attachment is None else self._attachment.fileno()
        try:
            self._descriptors = Descriptors(chosen.recipe, channel, command)
        except OSError:
            self._leave()
            raise
        self.argv = self._descriptors.argv
        self.pass_fds = self._descriptors.pass_fds

    @property
    def client(self) -> str | None:
        """The id that grants can be scoped to, where there is a proxy."""
        return None if self._attachment is None else self._attachment.welcome.client

    def started(self) -> None:
        """The process is spawned, and has its descriptors."""
        self._descriptors.close_passed()

    def finish(self, returncode: int, stderr_tail: bytes = b"") -> Finished:
        """What became of it. ``returncode``: as subprocess has it, after the process has been waited for."""
        errors, status = self._descriptors.errors(), self._descriptors.status()
        report = None if self._attachment is None else self._attachment.finish()
        left = planted(self._spec.roots, self._before) if self._spec.protect else None
        left = with_programs(left or Planted(), *take_set_group_off(self._spec.roots, self._started_ns))
        ended = Ended(returncode, stderr_tail, status, errors)
        bounds = Bounds(self._spec.roots, self._spec.cwd or "/", self._protected())
        end = outcome(ended, self.backend, bounds, report=report, planted=left)
        if end.runner_failure is not None:
            forget_verdicts()
        return Finished(end, report, egress_lost=self._attachment is not None and report is None)

    def _protected(self) -> tuple[str, ...]:
        """What could not be changed in the roots: what is protected there, and what is hidden."""
        hidden = tuple(path for path in self._terrain.masked.paths if is_in(path, self._spec.roots))
        with contextlib.suppress(SandboxUnavailable):
            protections = self._terrain.protections(self._spec)
            return tuple(p for one in protections for p in (*one.mount_points, *one.read_only)) + hidden
        return hidden

    def _leave(self) -> None:
        if self._attachment is not None:
            self._attachment.close()

    def close(self) -> None:
        self._descriptors.close()
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
