"""`sandbox profile|linux-wrap|describe`: a profile, a command line, or the truth about a policy, on stdout.

Nothing is confined here. Next: sandbox_policy.py (flags), sandbox/choose.py (rungs), sandbox/seatbelt.py.
"""

import argparse
import difflib
import json
import os
from collections.abc import Callable, Mapping, Sequence

from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.flag_parser import FlagParser, split_command
from egress_proxy.cli.output import say
from egress_proxy.cli.sandbox_arguments import EVERYTHING, describe_parser, linux_wrap_parser, profile_parser
from egress_proxy.cli.sandbox_policy import (
    home_of,
    masked_line,
    roots_of,
    spec_of,
    tell_of_roots,
    working_folder,
)
from egress_proxy.sandbox.choose import Chosen, choose
from egress_proxy.sandbox.confinement import portable_argv
from egress_proxy.sandbox.environment import named_variables
from egress_proxy.sandbox.seatbelt import build_seatbelt_profile
from egress_proxy.sandbox.spec import (
    Dimension,
    Enforcement,
    Gap,
    SandboxSpec,
    SandboxUnavailable,
    overall,
)

# The profile of macOS denies __pycache__ writes, and a root's bytecode is nobody's business either.
_VARIABLES = {"PYTHONDONTWRITEBYTECODE": "1"}
# What holds was tried here, outside: an executor inside, whose commands a host spawns, cannot try it.
_HELD = "EGRESS_EXEC_BACKEND"
_Action = Callable[[argparse.Namespace, Mapping[str, str]], int]


def sandbox(
    words: Sequence[str], environ: Mapping[str, str], *, program: str, bare_module: str | None = None
) -> int:
    """``bare_module``: started as `python -m` this, without -P or -I: the working folder comes first."""
    actions: Mapping[str, tuple[Callable[[str], FlagParser], _Action]] = {
        "profile": (profile_parser, _profile),
        "linux-wrap": (linux_wrap_parser, _linux_wrap),
        "describe": (describe_parser, _describe),
    }
    name = words[0] if words else ""
    if name in ("-h", "--help"):
        print(_overview(program))
        return ExitCode.OK
    if name not in actions:
        near = difflib.get_close_matches(name, actions, 1)
        hint = f", did you mean {near[0]}?" if near else ""
        what = f"unknown command {name!r}{hint}" if name else f"name a command: {', '.join(actions)}"
        raise VerbFailed(ExitCode.USAGE, f"{what}; see {program} --help")
    make_parser, action = actions[name]
    flags, command = split_command(words[1:])
    arguments = make_parser(f"{program} {name}").parse(flags)
    if command and name != "linux-wrap":
        raise VerbFailed(ExitCode.USAGE, f"{name} takes no command; see {program} {name} --help")
    arguments.command = command
    code = action(arguments, environ)
    tell_of_roots((*arguments.writable_root, *arguments.dangerously_writable_root), bare_module)
    return code


def _overview(program: str) -> str:
    return (
        "Confine a process so that the proxy is its only way out.\n\n"
        f"usage: {program} profile|linux-wrap|describe [flags]\n\n"
        "  profile     print a Seatbelt profile (macOS)\n"
        "  linux-wrap  print a command line that runs a command confined (Linux)\n"
        "  describe    say what can be enforced here, for one policy"
    )


def _profile(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    roots = roots_of(arguments.writable_root, arguments.dangerously_writable_root, environ)
    home = None if EVERYTHING in arguments.no_mask else home_of(environ)
    try:
        profile = build_seatbelt_profile(
            writable_roots=roots,
            allowed_hosts=[] if arguments.deny_all else arguments.allow_host,
            network=not arguments.no_network,
            proxy_port=arguments.proxy_port,
            allow_resolver=arguments.allow_resolver,
            allow_trust=arguments.allow_trust,
            scratch=_scratch(environ),
            masks=[os.path.realpath(path) for path in arguments.mask],
            home=home if home is None else os.path.realpath(home),
            cwd=working_folder(),
            unmasked=[os.path.realpath(path) for path in arguments.no_mask if path != EVERYTHING],
        )
    except ValueError as error:
        raise VerbFailed(ExitCode.USAGE, str(error)) from None
    if home is not None:
        say("masked: known places of keys in the home; .env files in it, the working folder and the roots")
    print(profile, end="")
    return ExitCode.OK


def _scratch(environ: Mapping[str, str]) -> list[str]:
    """The user's own folder for temporary files, which a Mac names in TMPDIR."""
    folder = environ.get("TMPDIR", "")
    return [os.path.realpath(folder)] if os.path.isabs(folder) else []


def _linux_wrap(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if not arguments.command:
        example = "linux-wrap --no-network -- make test"
        raise VerbFailed(ExitCode.USAGE, f"name the command behind --, as in: {example}")
    try:
        named = named_variables(arguments.env)
    except ValueError as error:
        raise VerbFailed(ExitCode.USAGE, f"--env: {error}") from None
    try:
        spec, chosen = _chosen(arguments, environ)
        held = {"backend": chosen.backend, "enforcement": chosen.enforcement}
        variables = {**_VARIABLES, _HELD: json.dumps(held, separators=(",", ":")), **named.values}
        argv = portable_argv(chosen, spec, arguments.command, variables, arguments.command[0], named.names)
    except SandboxUnavailable as error:
        raise VerbFailed(ExitCode.USAGE, str(error)) from None
    if hidden := chosen.terrain.masked.paths:
        say(masked_line(hidden, spec.homes))
    print(json.dumps({"argv": argv, **_described(chosen.backend, chosen.gaps)}))
    return ExitCode.OK


def _describe(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    try:
        _, chosen = _chosen(arguments, environ)
    except SandboxUnavailable as error:
        say(str(error))
        gaps = tuple(Gap(dimension, Enforcement.NONE, "none:no-backend") for dimension in Dimension)
        print(json.dumps(_described("none", gaps)))
    else:
        print(json.dumps(_described(chosen.backend, chosen.gaps)))
    return ExitCode.OK


def _chosen(arguments: argparse.Namespace, environ: Mapping[str, str]) -> tuple[SandboxSpec, Chosen]:
    """Raises SandboxUnavailable."""
    spec = spec_of(arguments, environ)
    search_path = environ.get("PATH", os.defpath)
    chosen = choose(spec, search_path, backend=arguments.backend, portable=True)
    if chosen.passed_over:
        say(f"not the stronger sandbox: {chosen.passed_over}")
    return spec, chosen


def _described(backend: str, gaps: Sequence[Gap]) -> dict[str, object]:
    return {"backend": backend, "enforcement": overall(gaps), "gaps": [gap.as_json() for gap in gaps]}
