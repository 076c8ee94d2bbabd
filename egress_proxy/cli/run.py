"""`run -- COMMAND`: proxy, sandbox, environment and child in one, and at the end what came of it.

A service of its own on ephemeral ports, which ends with the command. Next: composition.py (the service),
sandbox_policy.py (the sandbox), run_child.py (the command), run_summary.py and run_failure.py (what is
printed).
"""

import argparse
import asyncio
import functools
import os
import signal
import sys
import time
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from egress_proxy.cli.ask import TerminalAsker
from egress_proxy.cli.ask_terminal import QuestionTerminal
from egress_proxy.cli.composition import Composed, StartFailed, serving, words_of
from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.hardening import wipe_environment
from egress_proxy.cli.output import say
from egress_proxy.cli.own_files import kept_in_run
from egress_proxy.cli.plan import AttachPlan, ServicePlan
from egress_proxy.cli.planning import command_of, plan_service
from egress_proxy.cli.run_child import Ended, run_child
from egress_proxy.cli.run_failure import hint_inside_a_sandbox, not_executed
from egress_proxy.cli.run_streams import STDIN, fill_closed_streams
from egress_proxy.cli.run_summary import summary
from egress_proxy.cli.sandbox_arguments import EVERYTHING
from egress_proxy.cli.sandbox_policy import (
    home_of,
    host_files,
    may_be_root,
    roots_of,
    shown_of,
    tell_of_roots,
    working_folder,
)
from egress_proxy.core.policy import OnMiss
from egress_proxy.logs import Verbosity, show_faults_of_others
from egress_proxy.sandbox.choose import choose
from egress_proxy.sandbox.confinement import Confinement, Finished
from egress_proxy.sandbox.environment import NamedVariables, named_variables
from egress_proxy.sandbox.roots import homes
from egress_proxy.sandbox.short_folder import short_folder
from egress_proxy.sandbox.spec import KeptRefused, SandboxSpec, SandboxUnavailable, ThroughProxy
from egress_proxy.settings.toml_file import SettingsFile, file_layer

# What env(1), nohup(1) and timeout(1) answer when it is their own fault.
OUR_FAULT = 125
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class _Order:
    """What is asked for. ``interactive``: the command gets our terminal, with its job control."""

    command: tuple[str, ...]
    spec: SandboxSpec
    plan: ServicePlan
    backend: str | None
    quiet: bool
    ask: bool
    variables: NamedVariables


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """The command's own exit code, 128+n for signal n, 125 where we are at fault."""
    if not arguments.command:
        raise VerbFailed(ExitCode.USAGE, "name the command behind --, as in: run --allow example.com -- make")
    fill_closed_streams()
    order = _order(arguments, environ)
    # From here on there is something to clean up: what ends us is heard by the loop, between two steps.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    show_faults_of_others(order.plan.verbosity, sys.stderr, time.time)
    try:
        with short_folder(f"egress-run-{os.getpid()}-", environ) as folder:
            attach = AttachPlan(folder / "attach.sock", is_named=True)
            order = replace(order, plan=replace(order.plan, attach=attach))
            return asyncio.run(_until_told_to_end(_run(order, environ), before))
    except KeptRefused as error:
        raise VerbFailed(ExitCode.USAGE, str(error)) from None
    except (StartFailed, SandboxUnavailable) as error:
        reason = str(error)
    except OSError as error:
        reason = f"the command cannot be started: {words_of(error)}"
    say(f"error: {reason}{hint_inside_a_sandbox(environ)}")
    return OUR_FAULT


async def _until_told_to_end(work: Coroutine[None, None, int], mask: Iterable[int]) -> int:
    """Until the command is there to hear of signals itself. ``mask``: those that were blocked before."""
    loop, heard = asyncio.get_running_loop(), list[int]()
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  this runs in one

    def end(number: int) -> None:
        heard.append(number)
        task.cancel()

    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup(1) has it ignored
            loop.add_signal_handler(number, end, number)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        return await work
    except asyncio.CancelledError:
        if heard:
            return 128 + heard[0]
        raise


def _order(arguments: argparse.Namespace, environ: Mapping[str, str]) -> _Order:
    roots = roots_of(arguments.rw, arguments.dangerously_rw, environ, "--dangerously-rw")
    variables = _variables(arguments.env)
    if arguments.config:
        _refuse_control(arguments.config)
    command = command_of(arguments)
    flags = {**command.flags, "bind": "127.0.0.1:0", "attach": ""}
    if not any(flags.get(name) for name in ("allow", "allow_private", "allow_shared")):
        flags["allow_none"] = True  # as the default is: nothing is reached that is not listed
    planned = plan_service(replace(command, flags=flags), environ, wipe_environment)
    # A path that a settings file names is the service's: it may be running, and so may another `run`. A port
    # on the host's loopback would be open to every user of the machine, with the credentials of the rules.
    plan = replace(planned.plan, control=None, bind=None, unix_path=None)
    if not arguments.verbose:
        plan = replace(plan, verbosity=Verbosity.QUIET)
    spec = SandboxSpec(
        roots,
        shown=shown_of(arguments, roots),
        cwd=working_folder(),
        homes=homes(home_of(environ)),
        mask_secrets=EVERYTHING not in arguments.no_mask,
        masks=(*map(os.path.abspath, arguments.mask), *plan.parts.own.secret),
        unmasked=tuple(map(os.path.abspath, arguments.no_mask)),
        protected=host_files(environ),
        kept=tuple(kept_in_run(plan.parts.own, arguments.config, environ, plan.audit, plan.record_path)),
        interactive=os.isatty(STDIN),
    )
    for warning in () if arguments.quiet else planned.warnings:
        say(f"warning: {warning}")
    tell_of_roots((*arguments.rw, *arguments.dangerously_rw), arguments.bare_module)
    return _Order(
        tuple(arguments.command),
        spec,
        plan,
        arguments.backend,
        arguments.quiet,
        arguments.ask,
        variables,
    )


def _variables(entries: list[str]) -> NamedVariables:
    """Raises VerbFailed, which names the variable and no value."""
    try:
        return named_variables(entries)
    except ValueError as error:
        raise VerbFailed(ExitCode.USAGE, f"--env: {error}") from None


def _refuse_control(config: str) -> None:
    """Raises SettingsError for a file that was named and asks for what there is none of."""
    layer = file_layer(SettingsFile(config, named=True))
    if layer is not None and "control" in layer.tree:
        key = ("control",)
        raise layer.locate(key).error(
            key,
            "is for `serve`: `run` has no control API on a port, so that nobody else widens what its command"
            " may reach; leave it out, and name hosts with --allow or answer --ask",
        )


async def _run(order: _Order, environ: Mapping[str, str]) -> int:
    failed: SandboxUnavailable | OSError | None = None
    async with AsyncExitStack() as stack:
        terminal = _question_terminal(stack, environ) if order.ask else None
        timeout_s = order.plan.hold_timeout_s
        make_asker = None if terminal is None else functools.partial(TerminalAsker, terminal, timeout_s)
        composed = await stack.enter_async_context(serving(_plan(order), make_asker))
        try:
            return await _run_confined(order, composed, environ, terminal)
        except (SandboxUnavailable, OSError) as error:
            failed = error  # the service's task group would wrap it
    raise failed


async def _run_confined(
    order: _Order, composed: Composed, environ: Mapping[str, str], terminal: QuestionTerminal | None
) -> int:
    attach = str(composed.attach)
    spec = replace(order.spec, egress=ThroughProxy(attach, composed.doors.port))
    # In threads: they wait for answers of the proxy, which are given in this loop.
    with await asyncio.to_thread(_confine, order, spec, environ) as confinement:
        _let_nobody_attach(Path(attach))
        ended = await run_child(confinement, interactive=spec.interactive, terminal=terminal)
        finished = await asyncio.to_thread(confinement.finish, ended.code, ended.stderr_tail or b"")
    return _tell(order, environ, confinement, ended, finished)


def _let_nobody_attach(attach: Path) -> None:
    """The one that may is there. Besides, if we are killed nothing is left behind."""
    attach.unlink()
    attach.parent.rmdir()


def _tell(
    order: _Order, environ: Mapping[str, str], confinement: Confinement, ended: Ended, finished: Finished
) -> int:
    outcome = finished.outcome
    if outcome.runner_failure is not None:
        say(f"error: the command was not run: {outcome.runner_failure}{hint_inside_a_sandbox(environ)}")
        return OUR_FAULT
    if outcome.exec_failure is not None:
        say(f"error: {not_executed(outcome.exec_failure, order.command[0], confinement.backend, environ)}")
    elif not order.quiet:
        watched = ended.stderr_tail is not None
        proposed = functools.partial(may_be_root, environ=environ)
        roots = order.spec.roots
        for line in summary(finished, confinement, roots, watched_files=watched, may_be_root=proposed):
            say(line)
    return outcome.exit_code


def _plan(order: _Order) -> ServicePlan:
    if not order.ask:
        return order.plan
    parts = order.plan.parts
    return replace(order.plan, parts=replace(parts, policy=replace(parts.policy, on_miss=OnMiss.HOLD)))


def _question_terminal(stack: AsyncExitStack, environ: Mapping[str, str]) -> QuestionTerminal:
    """Raises StartFailed where there is no terminal to ask at."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        raise StartFailed("--ask needs a terminal to ask at; without one name hosts with --allow") from None
    stack.callback(os.close, terminal)
    # In the background of the terminal a read fails then, and does not stop the proxy.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN, signal.SIGTTOU})
    return QuestionTerminal(terminal, is_dumb=environ.get("TERM", "dumb") == "dumb")


def _confine(order: _Order, spec: SandboxSpec, environ: Mapping[str, str]) -> Confinement:
    chosen = choose(spec, environ.get("PATH", os.defpath), backend=order.backend)
    # The label is written to logs, so it is the program alone: arguments may be secrets.
    return Confinement(chosen, spec, order.command, environ, order.command[0], order.variables)
