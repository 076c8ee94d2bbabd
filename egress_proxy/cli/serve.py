"""The verb `serve`: the service with its control API, and what it says when it accepts.

Nothing is decided and no setting is read here: a ServicePlan has every value. Next: composition.py (builds
the parts), service.py (what runs then), proxy/connection.py (what happens to a client).
"""

import asyncio
import contextlib
import gc
import sys
import time
from contextlib import AsyncExitStack

from egress_proxy.cli.composition import Composed, StartFailed, compose
from egress_proxy.cli.exit_codes import ExitCode
from egress_proxy.cli.output import say
from egress_proxy.cli.plan import ServicePlan
from egress_proxy.logs import show_faults_of_others


def run(plan: ServicePlan) -> int:
    """Serve until a signal says stop; the exit code."""
    show_faults_of_others(plan.verbosity, sys.stderr, time.time)
    try:
        asyncio.run(_serve(plan))
    except StartFailed as error:
        say(f"error: {error}")
        return ExitCode.FAILURE
    return ExitCode.OK


async def _serve(plan: ServicePlan) -> None:
    async with AsyncExitStack() as stack:
        composed = await compose(plan, stack)
        for warning in composed.warnings:
            say(f"warning: {warning}")
        control_port = None
        if plan.control is not None:
            # It brings a web framework: a service without it should not wait for that, nor hold it.
            from egress_proxy.cli.control_start import start_control

            control_port = await start_control(plan.control, composed, stack)
        # What start-up has made stays to the end. Left out of collections it costs no pauses, and the
        # interpreter ends in a tenth of the time: a stopped service is to be gone within a second.
        gc.freeze()
        await composed.service.run(composed.doors, lambda: _announce(composed, control_port))


def _announce(composed: Composed, control_port: int | None) -> None:
    """What hosts wait for: printed when all ports accept, flushed, nothing else on stdout."""
    lines = [f"EGRESS_PROXY_PORT={composed.doors.port}"]
    if control_port is not None:
        lines.append(f"EGRESS_CONTROL_PORT={control_port}")
    if composed.attach is not None:
        lines.append(f"EGRESS_ATTACH={composed.attach}")
    with contextlib.suppress(BrokenPipeError):  # a host that does not read is served all the same
        print("\n".join(lines), flush=True)
