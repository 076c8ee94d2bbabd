"""Search for lines that break the classifier: python -m tests.fuzz.fuzz_classifier [libFuzzer options]

Needs atheris, which is no dependency; starts from the labelled corpus. Finds crashes, time that grows faster
than the line, and lines that bash runs destructively (shell_sandbox.py, where bubblewrap is installed) and
the classifier calls safe. What it finds lands in the working folder; a find becomes a line of the corpus.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from egress_proxy.safety.classify import classify_shell_command
from tests.benchmarks.classifier.corpus import corpus
from tests.fuzz.destruction import destruction
from tests.fuzz.shell_sandbox import LONGEST, ShellSandbox, unavailable
from tests.fuzz.targets import Broken

GRADES = {"safe", "warning", "critical"}
SHORT, LONG = 8_000, 64_000
# CPU seconds for LONG characters. Generous, for a busy machine and instrumented code; a quadratic reader of
# something that takes 1 ms in 1 KB would need four seconds.
BOUND_S = 1.0


def judged(line: str) -> str:
    """The grade, after what must hold for any line: an answer, and the same one by every road to it."""
    for platform in ("unix", "windows"):
        result = classify_shell_command(line, platform)
        if str(result.severity) not in GRADES or (str(result.severity) == "safe") != (
            not result.matched_rules
        ):
            raise Broken(f"{line!r} on {platform}: {result.severity} with {result.matched_rules}")
        if not isinstance(result.explain(), str) or result["severity"] != str(result.severity):
            raise Broken(f"{line!r} on {platform}: the parts of the result differ")
    return str(classify_shell_command(line, "unix").severity)


def cpu_seconds(line: str) -> float:
    started = time.process_time()
    classify_shell_command(line, "unix")
    return time.process_time() - started


def keeps_time(line: str) -> None:
    """Raise if the line, said again and again, takes longer than any linear reader would."""
    if not line:
        return
    for size in (SHORT, LONG):
        long_line = line * (size // len(line) + 1)
        if (taken := cpu_seconds(long_line)) > BOUND_S:
            raise Broken(f"{line!r} repeated to {len(long_line)} characters takes {taken:.2f} s")


def done_by_bash(line: str, sandbox: ShellSandbox) -> str | None:
    """What bash destroys by the line, in the sandbox; None also for a line that it cannot be given."""
    if "\0" in line or len(line.encode("utf-8", "surrogateescape")) > LONGEST:
        return None
    return destruction(sandbox.run(line))


def agrees_with_bash(line: str, sandbox: ShellSandbox) -> None:
    """Raise if the line is called safe and bash destroys by it."""
    if judged(line) == "safe" and (what := done_by_bash(line, sandbox)):
        raise Broken(f"called safe: {line!r} does: {what}")


def main(argv: list[str]) -> None:
    atheris = importlib.import_module("atheris")
    reason = unavailable()
    if reason:
        print(f"lines are graded and not run: {reason}", file=sys.stderr)

    with ExitStack() as stack:
        sandbox = None if reason else stack.enter_context(ShellSandbox())
        seeds = stack.enter_context(tempfile.TemporaryDirectory(prefix="fz-seeds-"))

        def once(data: bytes) -> None:
            line = data.decode("utf-8", "surrogateescape")
            judged(line)
            keeps_time(line)
            if sandbox is not None:
                agrees_with_bash(line, sandbox)

        for number, line in enumerate(corpus()):
            Path(seeds, str(number)).write_text(line.command, encoding="utf-8")
        atheris.instrument_all()
        atheris.Setup([argv[0], *argv[1:], seeds], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
