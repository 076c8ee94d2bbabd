"""When a flow may take its turn: readiness of descriptors from the event loop, level-triggered.

The only caller of `Tunnel.advance`. Nothing is read or written here. Next: relay.py (what a turn does),
tunnel.py (how a tunnel ends).
"""

import asyncio
from typing import assert_never

from egress_proxy.proxy.relay import Flow, Wants
from egress_proxy.proxy.tunnel import Tunnel


class LoopReadiness:
    """Drives tunnels by `add_reader` and `add_writer`: works on every event loop of every platform."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self, tunnel: Tunnel, spoke: tuple[bool, bool] = (False, False)) -> None:
        """``spoke`` says nothing new here: what is readable is reported as long as it is."""
        for flow in tunnel.flows:
            if not tunnel.is_over:
                self._advance(tunnel, flow)

    def forget(self, tunnel: Tunnel) -> None:
        """Stop watching; call before the sockets are closed."""
        for flow in tunnel.flows:
            self._loop.remove_reader(flow.source)
            self._loop.remove_writer(flow.sink)

    def _advance(self, tunnel: Tunnel, flow: Flow) -> None:
        wants = tunnel.advance(flow)
        if not tunnel.is_over:
            self._watch(tunnel, flow, wants)

    def _watch(self, tunnel: Tunnel, flow: Flow, wants: Wants) -> None:
        if wants is Wants.TURN:  # level-triggered: a source that has more is reported again by itself
            wants = Wants.READ
        if wants is flow.armed:
            return
        # A flow that waits for its sink does not read: this is all there is to back-pressure.
        if flow.armed is Wants.READ:
            self._loop.remove_reader(flow.source)
        elif flow.armed is Wants.WRITE:
            self._loop.remove_writer(flow.sink)
        flow.armed = wants
        match wants:
            case Wants.READ:
                self._loop.add_reader(flow.source, self._advance, tunnel, flow)
            case Wants.WRITE:
                self._loop.add_writer(flow.sink, self._advance, tunnel, flow)
            case Wants.NOTHING | Wants.TURN:
                pass
            case _:
                assert_never(wants)
