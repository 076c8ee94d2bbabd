"""`allow`, `revoke`, `grants`: a person's calls to the control API of a running proxy.

Each failure is one line with the next command. Next: control_api/client.py (makes the calls).
"""

import argparse
import sys
import time
from collections.abc import Mapping

from control_api.client import (
    ControlClient,
    ControlRefusedError,
    ControlTokenWrong,
    ControlUnreachable,
)
from control_api.models import GrantList, GrantView
from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.output import print_json, shown
from egress_proxy.core.host import HostError, parse_port

PORT_VARIABLE = "STEERABLE_EGRESS_CONTROL_PORT"
TOKEN_VARIABLE = "STEERABLE_EGRESS_CONTROL_TOKEN"
# Each has a second spelling, which is the one that serve prints: EGRESS_CONTROL_PORT, EGRESS_CONTROL_TOKEN.
_LONG = "STEERABLE_"

_CODES = {403: ExitCode.REFUSED, 400: ExitCode.USAGE, 404: ExitCode.FAILURE}


def control_verb(verb: str, arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    try:
        client = _client(arguments, environ)
        match verb:
            case "allow":
                return _allow(client, arguments)
            case "revoke":
                return _revoke(client, arguments)
            case _:
                return _grants(client, arguments)
    except ControlTokenWrong as wrong:
        raise VerbFailed(
            ExitCode.TOKEN, f"{wrong}; put the service's token in ${_token_variable(arguments)}"
        ) from None
    except ControlUnreachable as silent:
        raise VerbFailed(
            ExitCode.FAILURE, f"{silent}; serve prints the port as EGRESS_CONTROL_PORT=…"
        ) from None
    except ControlRefusedError as refused:
        code = _CODES.get(refused.status, ExitCode.FAILURE)
        raise VerbFailed(code, shown(refused.detail)) from None


def _client(arguments: argparse.Namespace, environ: Mapping[str, str]) -> ControlClient:
    variable = _token_variable(arguments)
    token = _value_of(variable, environ)[1]
    if not token:
        raise VerbFailed(ExitCode.TOKEN, f"the control token is missing: put it in ${variable}")
    return ControlClient(_port(arguments, environ), token)


def _value_of(variable: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """A variable in the first spelling that holds something, and what it holds."""
    spellings = dict.fromkeys((variable, variable.removeprefix(_LONG)))
    return next(((name, value) for name in spellings if (value := environ.get(name))), (variable, None))


def _token_variable(arguments: argparse.Namespace) -> str:
    return str(arguments.control_token_env or TOKEN_VARIABLE)


def _port(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    text, name = arguments.control_port, "--control-port"
    if text is None:
        name, text = _value_of(PORT_VARIABLE, environ)
    if not text:
        raise VerbFailed(
            ExitCode.USAGE,
            f"name the control port with --control-port or ${PORT_VARIABLE}; "
            "serve prints it as EGRESS_CONTROL_PORT=…",
        )
    try:
        return parse_port(text)
    except HostError:
        raise VerbFailed(ExitCode.USAGE, f"{name} must be a port, 1 to 65535") from None


def _allow(client: ControlClient, arguments: argparse.Namespace) -> int:
    answer = client.allow(
        arguments.entry,
        ttl_s=arguments.ttl,
        max_uses=arguments.max_uses,
        client=arguments.client,
        reason=arguments.reason or "",  # said although it is empty: a host alone is answered without the id
    )
    if arguments.json:
        print_json(answer, sparse=True)
        return ExitCode.OK
    print(f"allowed  {shown(answer.allowed)}  ports {answer.ports}  {shown(answer.id or '')}".rstrip())
    return ExitCode.OK


def _revoke(client: ControlClient, arguments: argparse.Namespace) -> int:
    answer = client.revoke(arguments.grant_id)
    if not answer.recorded:
        print("warning: revoked, but the audit log cannot be written: make room for it", file=sys.stderr)
    if arguments.json:
        print_json(answer)
    else:
        print(f"revoked  {shown(arguments.grant_id)}  tunnels closed: {answer.tunnels_closed}")
    return ExitCode.OK


def _grants(client: ControlClient, arguments: argparse.Namespace) -> int:
    grants = client.grants()
    if arguments.json:
        print_json(GrantList(grants=grants))
        return ExitCode.OK
    rows = [("ID", "HOST", "PORTS", "CLIENT", "ENDS", "REASON"), *map(_row, grants)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows if grants else ():
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return ExitCode.OK


def _row(grant: GrantView) -> tuple[str, ...]:
    cells = (grant.id, grant.allowed, grant.ports, grant.client or "-", _end(grant), grant.reason)
    return tuple(map(shown, cells))


def _end(grant: GrantView) -> str:
    """What is left of it: `59 s, 2 uses`."""
    parts = []
    if grant.expires_at is not None:
        parts.append(f"{max(0, round(grant.expires_at - time.time()))} s")
    if grant.uses_left is not None:
        parts.append(f"{grant.uses_left} uses")
    if grant.bytes_left is not None:
        parts.append(f"{grant.bytes_left} bytes")
    return ", ".join(parts) or "with the service"
