"""From a command line to an exit code: the entry points, and how every error becomes one line.

One of the two outermost loops: no traceback reaches a user. Next: arguments.py (verbs and flags),
serve.py and the other files named for their verbs.
"""

import argparse
import contextlib
import difflib
import io
import os
import platform
import sys
import traceback
from collections.abc import Callable, Sequence

from egress_proxy import __version__
from egress_proxy.cli.arguments import PARSERS, SUMMARIES, TAKES_COMMAND
from egress_proxy.cli.beginning import heed_interrupts, open_what_is_closed
from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.flag_parser import split_command
from egress_proxy.cli.hardening import (
    environment_copy,
    harden_process,
    raise_descriptor_limit,
    wipe_environment,
)
from egress_proxy.cli.module_search import warn_of_shadows
from egress_proxy.cli.output import say
from egress_proxy.settings.origins import SettingsError

_PROGRAM = "egress-proxy"
_DROP_IN = "steerable-egress-proxy"
_NOT_A_FLAG_OF_SERVE = frozenset({"-h", "--help", "--version"})


def main(argv: Sequence[str] | None = None) -> int:
    """`egress-proxy VERB …`."""
    words = list(sys.argv[1:] if argv is None else argv)
    return _end_well(lambda: _dispatch(words))


def main_drop_in(argv: Sequence[str] | None = None) -> int:
    """`steerable-egress-proxy …`: `serve` under the name that existing hosts start."""
    words = list(sys.argv[1:] if argv is None else argv)
    return _end_well(lambda: _run("serve", _DROP_IN, words))


def main_module(argv: Sequence[str] | None = None) -> int:
    """`python -m egress_proxy …`. Without -P or -I modules are looked for in the working folder."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0].startswith("-") and words[0] not in _NOT_A_FLAG_OF_SERVE:
        words.insert(0, "serve")
    return _end_well(lambda: _dispatch(words, bare_module=not sys.flags.safe_path))


def _dispatch(words: list[str], *, bare_module: bool = False) -> int:
    verb = words[0] if words else ""
    if bare_module:
        warn_of_shadows()
    if verb in ("-h", "--help"):
        print(_overview())
        return ExitCode.OK
    if verb == "--version":
        return _print_version()
    if verb == "sandbox":
        return _sandbox(words[1:], bare_module="egress_proxy" if bare_module else None)
    if verb in PARSERS:
        return _run(verb, f"{_PROGRAM} {verb}", words[1:], bare_module=bare_module)
    verbs = sorted([*PARSERS, "sandbox"])
    if not verb:
        raise VerbFailed(ExitCode.USAGE, f"name a command: {', '.join(verbs)}; see {_PROGRAM} --help")
    near = difflib.get_close_matches(verb, verbs, 1)
    hint = f", did you mean {near[0]}?" if near else ""
    raise VerbFailed(ExitCode.USAGE, f"unknown command {verb!r}{hint}; see {_PROGRAM} --help")


def main_sandbox_module() -> int:
    """`python -m egress_proxy.sandbox …`. Without -P or -I modules are looked for in the working folder."""
    words, module = sys.argv[1:], "egress_proxy.sandbox"
    bare = None if sys.flags.safe_path else module
    return _end_well(lambda: _sandbox(words, f"python -m {module}", bare_module=bare))


def _sandbox(
    words: list[str], program: str = f"{_PROGRAM} sandbox", *, bare_module: str | None = None
) -> int:
    heed_interrupts()
    from egress_proxy.cli.sandbox_verb import sandbox

    return sandbox(words, environment_copy(), program=program, bare_module=bare_module)


def _run(verb: str, program: str, words: list[str], *, bare_module: bool = False) -> int:
    if "--version" in words[:1]:
        return _print_version()
    flags, command = split_command(words) if verb in TAKES_COMMAND else (words, [])
    if verb != "serve":  # which has nothing to close until its loop hears of signals
        heed_interrupts()
    arguments = PARSERS[verb](program).parse(flags)
    arguments.command = command
    arguments.bare_module = "egress_proxy" if bare_module else None
    return _action(verb)(arguments)


def _action(verb: str) -> Callable[[argparse.Namespace], int]:
    """The function behind a verb. Imported only now: `env` should not wait for a DNS library."""
    environ = environment_copy()
    match verb:
        case "serve":
            return _serve
        case "run":
            return _run_command
        case "check":
            from egress_proxy.cli.check import check

            return lambda arguments: check(arguments, environ)
        case "classify":
            from egress_proxy.cli.classify import classify

            return classify
        case "config":
            from egress_proxy.cli.config import config

            return lambda arguments: config(arguments, environ)
        case "env":
            from egress_proxy.cli.env import env

            return lambda arguments: env(arguments, environ)
        case _:
            from egress_proxy.cli.control_verbs import control_verb

            return lambda arguments: control_verb(verb, arguments, environ)


def _serve(arguments: argparse.Namespace) -> int:
    harden_process()
    raise_descriptor_limit()
    from egress_proxy.cli.planning import command_of, plan_service

    planned = plan_service(command_of(arguments), environment_copy(), wipe_environment)
    for warning in planned.warnings:
        say(f"warning: {warning}")
    from egress_proxy.cli.serve import run

    return run(planned.plan)


def _run_command(arguments: argparse.Namespace) -> int:
    harden_process()
    from egress_proxy.cli.run import run

    return run(arguments, environment_copy())


def _overview() -> str:
    verbs = "\n".join(f"  {verb:<8} {words}" for verb, words in SUMMARIES.items())
    return (
        "An allow-listing egress proxy and credential broker for AI agents.\n\n"
        "examples:\n"
        f"  {_PROGRAM} serve --allow api.example.com\n"
        f'  eval "$({_PROGRAM} env)"\n'
        f"  {_PROGRAM} check https://api.example.com/\n\n"
        f"usage: {_PROGRAM} VERB [flags]; {_PROGRAM} VERB --help\n\n"
        f"verbs:\n{verbs}"
    )


def _print_version() -> int:
    import ssl

    python = f"Python {platform.python_version()}"
    print(f"steerable-egress {__version__} ({python}, {ssl.OPENSSL_VERSION})")
    return ExitCode.OK


def _end_well(verb: Callable[[], int]) -> int:
    """The verb's exit code, its output written out; every error is one line on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a letter is no reason to fail
    try:
        open_what_is_closed()
        code = _outcome(verb)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:
        _drop_output()
        return _failed(ExitCode.FAILURE, f"cannot go on: {error.strerror or type(error).__name__}")
    return code


def _outcome(verb: Callable[[], int]) -> int:
    try:
        return verb()
    except SystemExit as ended:  # argparse, after --help
        return ended.code if isinstance(ended.code, int) else ExitCode.OK
    except VerbFailed as failed:
        return _failed(failed.code, str(failed))
    except SettingsError as wrong:
        return _failed(ExitCode.USAGE, str(wrong))
    except OSError:  # in all likelihood of our own output: whoever reads a file names it
        raise
    except Exception as fault:
        # Its text may hold anything, secrets too; kind and place are enough to find it.
        frame = traceback.extract_tb(fault.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        return _failed(ExitCode.FAILURE, f"internal fault, {type(fault).__name__} at {place}")


def _failed(code: ExitCode, message: str) -> ExitCode:
    say(f"error: {message}")
    return code


def _reader_gone() -> ExitCode:
    """`| head` has seen enough: no message, and the code that a shell shows for SIGPIPE."""
    _drop_output()
    return ExitCode.BROKEN_PIPE


def _drop_output() -> None:
    """What is still in the buffer would fail once more when the interpreter ends, with a traceback."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
