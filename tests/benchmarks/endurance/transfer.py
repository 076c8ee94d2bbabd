"""So many bytes through so many tunnels, half of them each way, compared by their digests.

Next: check.py (how many), ../../support/origins.py (the two ends).
"""

from __future__ import annotations

import hashlib
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.support.byte_stream import BLOCK_BYTES, end_direction, read_end
from tests.support.origins import SinkOrigin, SourceOrigin, pattern, pattern_sha256
from tests.support.service import Service

_STALL_S = 30.0  # a tunnel on which nothing moves for so long is stuck
_NARROW_BYTES = 131_072  # so little room that what the proxy sends is often taken in part only


@dataclass(frozen=True, slots=True)
class Moved:
    """``broken``: tunnels whose bytes were not exactly those that were sent."""

    tunnels: int
    moved_bytes: int
    broken: int

    def faults(self, wanted_bytes: int) -> list[str]:
        found = [f"{self.broken} tunnels brought other bytes than were sent"] if self.broken else []
        if self.moved_bytes != wanted_bytes:
            found.append(f"{self.moved_bytes} bytes came, {wanted_bytes} were sent")
        return found


def move(service: Service, total_bytes: int, tunnels: int, grant_bytes: int | None = None) -> Moved:
    """All tunnels at once. ``tunnels`` must be even; each carries the same share of the bytes.

    ``grant_bytes``: what a grant for each of the two ends allows, where no entry allows them.
    """
    share = total_bytes // tunnels
    with SourceOrigin(share) as source, SinkOrigin() as sink, ThreadPoolExecutor(tunnels) as pool:
        for origin in (source, sink) if grant_bytes else ():
            service.allow(origin.address, max_bytes_out=grant_bytes)
        downs = [pool.submit(_download, service.tunnel(source.address)) for _ in range(tunnels // 2)]
        ups = [pool.submit(_upload, service.tunnel(sink.address), share) for _ in range(tunnels // 2)]
        counts = [down.result() for down in downs]
        sent = [up.result() for up in ups]
        arrived = [(sink.received_sha256(index), sink.received_count(index)) for index in range(len(ups))]
    wanted = (pattern_sha256(share), share)
    broken = sum(found != wanted for found in (*counts, *arrived))
    assert sent == [share] * len(ups)
    return Moved(tunnels, sum(count for _, count in (*counts, *arrived)), broken)


def _download(sock: socket.socket) -> tuple[str, int]:
    """The digest and the number of bytes up to the end of the stream."""
    digest, count = hashlib.sha256(), 0
    with sock:
        sock.settimeout(_STALL_S)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NARROW_BYTES)
        while block := sock.recv(BLOCK_BYTES):
            digest.update(block)
            count += len(block)
    return digest.hexdigest(), count


def _upload(sock: socket.socket, total_bytes: int) -> int:
    """Send the pattern, end the direction, wait until the far end has read it all and ended too."""
    unit = pattern(16 * (BLOCK_BYTES + 1))  # whole turns of the pattern, so that it goes on without a seam
    left = total_bytes
    with sock:
        sock.settimeout(_STALL_S)
        while left:
            block = memoryview(unit)[:left]
            sock.sendall(block)
            left -= len(block)
        end_direction(sock)
        read_end(sock, _STALL_S)
    return total_bytes - left
