"""The ways in which a battery's command is started: by the product's rungs in both forms, or in no sandbox.

Next: egress_proxy/sandbox/choose.py and confinement.py (the product), bench.py.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from egress_proxy.sandbox.choose import Chosen, choose
from egress_proxy.sandbox.confinement import Confinement, portable_argv
from egress_proxy.sandbox.landlock_gaps import Rung
from egress_proxy.sandbox.landlock_rung import NAME as LANDLOCK
from egress_proxy.sandbox.landlock_rung import landlock_gaps, landlock_recipe
from egress_proxy.sandbox.launcher import entries
from egress_proxy.sandbox.plan import Recipe, encode
from egress_proxy.sandbox.spec import SandboxSpec

_CLI_S = 30.0


class Form(enum.StrEnum):
    """Who opens the descriptors: an argv of its own, a process of ours, or what the command line prints."""

    PORTABLE = "portable"
    INSIDE = "inside"
    PRINTED = "printed"
    NONE = "none"  # no sandbox at all


@dataclass(frozen=True, slots=True)
class Started:
    """What to spawn."""

    argv: Sequence[str]
    env: Mapping[str, str]
    pass_fds: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Sandbox:
    """``abi``: this Landlock ABI, no newer one; 0: none. ``program``: starts `egress-proxy`, for PRINTED."""

    backend: str
    form: Form
    abi: int | None = None
    program: tuple[str, ...] = ()

    @contextlib.contextmanager
    def around(
        self, command: Sequence[str], spec: SandboxSpec, environ: Mapping[str, str]
    ) -> Iterator[Started]:
        match self.form:
            case Form.NONE:
                yield Started(command, environ)
            case Form.PRINTED:
                yield Started(self._printed(command, spec, environ), environ)
            case Form.PORTABLE:
                chosen = self._chosen(spec, environ)
                yield Started(portable_argv(chosen, spec, command, {}, "battery"), environ)
            case Form.INSIDE:
                chosen = self._chosen(spec, environ)
                with Confinement(chosen, spec, command, environ, "battery") as confined:
                    yield Started(confined.argv, confined.env, confined.pass_fds)

    def _chosen(self, spec: SandboxSpec, environ: Mapping[str, str]) -> Chosen:
        if self.abi is not None and self.backend == LANDLOCK:
            return self._older(spec, Rung(self.abi))
        portable = self.form is Form.PORTABLE
        chosen = choose(spec, environ["PATH"], backend=self.backend, portable=portable)
        if self.abi is None:
            return chosen
        assert self.abi == 0, "inside bwrap there is all of Landlock or none"
        return replace(chosen, recipe=without_landlock(chosen.recipe))

    def _older(self, spec: SandboxSpec, rung: Rung) -> Chosen:
        return Chosen(LANDLOCK, landlock_gaps(spec, rung), landlock_recipe(spec, rung))

    def _printed(
        self, command: Sequence[str], spec: SandboxSpec, environ: Mapping[str, str]
    ) -> Sequence[str]:
        attach = getattr(spec.egress, "attach", None)
        egress = ("--no-network",) if attach is None else ("--proxy", attach)
        roots = [word for root in spec.roots for word in ("--writable-root", root)]
        words = ("sandbox", "linux-wrap", *roots, *egress, "--backend", self.backend, "--", *command)
        done = subprocess.run(
            (*self.program, *words),
            env={**environ, "PYTHONSAFEPATH": "1"},
            cwd=spec.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=_CLI_S,
            check=True,
        )
        argv = json.loads(done.stdout)["argv"]
        assert os.path.isabs(argv[0])
        return [str(word) for word in argv]


def without_landlock(recipe: Recipe) -> Recipe:
    """As on a kernel that has none: what bwrap_recipe makes there."""
    left_out = (b"ruleset", b"path", b"path?", b"tcp")
    kept = [
        (os.fsdecode(key), os.fsdecode(value)) for key, value in entries(recipe.launch) if key not in left_out
    ]
    return replace(recipe, launch=encode(kept))
