"""What became of a confined command: did the sandbox fail, did the command, and was it denied something.

Typed sources come first (status stream, error pipe, the proxy's report); stderr is read last and strictly, as
any program can print anything. Next: stderr_paths.py (which path a line names), confinement.py (asks).
"""

import errno
import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from egress_proxy.core.attach import HostDenial, Report
from egress_proxy.sandbox.planted import Planted
from egress_proxy.sandbox.stderr_paths import Bounds, Dialect, denied_paths

BWRAP, LANDLOCK, SEATBELT = "bwrap", "landlock", "seatbelt"

_DIALECTS: Mapping[str, Dialect] = {
    BWRAP: Dialect(("read-only file system",)),
    LANDLOCK: Dialect(("permission denied",), ambiguous=True),
    SEATBELT: Dialect(("operation not permitted",), ambiguous=True, by_name=True),
}
DENIAL_SIGNATURES: Mapping[str, tuple[str, ...]] = {
    backend: dialect.signatures for backend, dialect in _DIALECTS.items()
}
"""For hosts that have stderr alone: what a refused write says in the C locale, in lower case."""

STDERR_LIMIT = 65_536
"""Bytes of stderr that are read, from its end."""
_SIGNAL_EXIT = 128  # shells and bwrap end with this plus the signal's number
_PASSED_ON = range(2, 32)  # from SIGINT on: 129 is how git ends when its words are wrong


@dataclass(frozen=True, slots=True)
class RunnerFailureRule:
    """For hosts that have stderr and an exit code alone. Letters' case does not count.

    ``allowed_exit_codes``: None is any but 0. ``informational_lines``: whole lines that are no failure.
    """

    fatal_signatures: tuple[str, ...]
    allowed_exit_codes: tuple[int, ...] | None = None
    informational_lines: tuple[str, ...] = ()

    def failure(self, exit_code: int | None, stderr: str) -> str | None:
        """The line that says it. ``exit_code``: None after a signal, which is never the runner's failure."""
        if exit_code is None or exit_code <= 0:
            return None
        if self.allowed_exit_codes is not None and exit_code not in self.allowed_exit_codes:
            return None
        harmless = {line.lower() for line in self.informational_lines}
        for line in stderr.splitlines():
            lower = line.lower()
            if lower not in harmless and any(text.lower() in lower for text in self.fatal_signatures):
                return line
        return None


# A command that prints such a line itself and exits alike is taken for a failed runner: whoever can carry
# descriptors uses `outcome` instead.
_OUR_LAUNCHER = RunnerFailureRule(("sandbox-run: ",), (125,))
RUNNER_FAILURE_RULES: Mapping[str, tuple[RunnerFailureRule, ...]] = {
    BWRAP: (RunnerFailureRule(("bwrap: ", "usage: bwrap"), (1,)), _OUR_LAUNCHER),
    LANDLOCK: (_OUR_LAUNCHER,),
    # Builds that bring their own sandbox-exec print such lines and end with codes of their own.
    SEATBELT: (RunnerFailureRule(("sandbox-exec: ",), (64, 65, 71)),),
}


def failed_runner(backend: str, exit_code: int | None, stderr: str) -> str | None:
    """The line that says that the sandbox could not be set up, by its rules."""
    failures = (rule.failure(exit_code, stderr) for rule in RUNNER_FAILURE_RULES[backend])
    return next((line for line in failures if line is not None), None)


@dataclass(frozen=True, slots=True)
class Ended:
    """What is known of a process that was started for a sandbox and has ended.

    ``returncode``: as subprocess has it. ``status``: bwrap's status documents, None where there is no such
    stream. ``errors``: what came out of the launcher's error pipe, "" when it was empty or not there.
    """

    returncode: int
    stderr: bytes = b""
    status: str | None = None
    errors: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``runner_failure``: the sandbox was not set up, and the command did not run. ``exec_failure``: it was,
    and the command could not be executed. Each says why, in one line.

    ``exit_code``: as a shell gives it, 128 + N for a signal. ``signal``: N, also where a shell or bwrap has
    passed it on as 128 + N. ``denied_writes``: real paths, read from stderr; relative as the command spelt it
    where it names one of several protected paths.
    """

    exit_code: int
    signal: int | None = None
    runner_failure: str | None = None
    exec_failure: str | None = None
    denied_hosts: tuple[HostDenial, ...] = ()
    denied_writes: tuple[str, ...] = ()
    planted: Planted = field(default_factory=Planted)

    @property
    def denied(self) -> bool:
        """Whether the sandbox refused something. False proves nothing: many tools print no errno."""
        return bool(self.denied_hosts or self.denied_writes) or self.signal == signal.SIGSYS


def outcome(
    ended: Ended,
    backend: str,
    bounds: Bounds,
    *,
    report: Report | None = None,
    planted: Planted | None = None,
) -> Outcome:
    """``report``: the proxy's, where the sandbox had one. The order of the steps is the order of trust."""
    stderr = ended.stderr[-STDERR_LIMIT:].decode("utf-8", "replace")
    failed = _not_started(ended, backend, stderr)
    if failed is not None:
        return failed
    code, number = _exit(ended.returncode)
    # One that was killed did not get to say what it was denied. One that went well was denied nothing that
    # counted, but for what is protected: `git push -u` ends with 0 without the upstream.
    dialect, is_well = _DIALECTS[backend], code == 0
    denied = () if number is not None else denied_paths(stderr, dialect, bounds, only_protected=is_well)
    return Outcome(
        exit_code=code,
        signal=number,
        denied_hosts=report.denied if report is not None else (),
        denied_writes=denied,
        planted=planted or Planted(),
    )


def spawn_failure(error: OSError, program: str, cwd: str | None) -> str | None:
    """Why the runner itself could not be started; None when the error is about something else, such as a
    working folder that is gone. ``program``: argv[0]."""
    about_program = error.errno in {errno.ENOENT, errno.EACCES} and error.filename == program
    if about_program and (cwd is None or os.path.isdir(cwd)):
        return f"{program} cannot be started: {error.strerror}"
    return None


def _not_started(ended: Ended, backend: str, stderr: str) -> Outcome | None:
    if ended.errors:
        line = ended.errors.splitlines()[0]
        if line.startswith("exec "):
            return Outcome(ended.returncode, exec_failure=line)
        return Outcome(ended.returncode, runner_failure=line)
    if backend == SEATBELT:  # which has no streams
        failure = failed_runner(backend, ended.returncode, stderr)
        return None if failure is None else Outcome(ended.returncode, runner_failure=failure)
    # A runner that was killed cannot say what the command did; it may well have run.
    if ended.status is None or ended.returncode < 0 or _has_exit_code(ended.status):
        return None
    said = [line for line in stderr.splitlines() if line.startswith("bwrap: ")]
    # The last one: there may be warnings before it.
    line = said[-1] if said else f"bwrap ended with {ended.returncode} before the command was started"
    if line.startswith("bwrap: execvp "):
        return Outcome(127 if line.endswith(os.strerror(errno.ENOENT)) else 126, exec_failure=line)
    return Outcome(ended.returncode, runner_failure=line)


def _has_exit_code(status: str) -> bool:
    """bwrap writes it if and only if it has executed the command, which cannot write there."""
    return any("exit-code" in document for document in _documents(status))


def _documents(status: str) -> Iterator[Mapping[str, object]]:
    for line in status.splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            continue  # cut short
        if isinstance(document, dict):
            yield document


def _exit(returncode: int) -> tuple[int, int | None]:
    if returncode < 0:
        return _SIGNAL_EXIT - returncode, -returncode
    number = returncode - _SIGNAL_EXIT
    return returncode, number if number in _PASSED_ON else None
