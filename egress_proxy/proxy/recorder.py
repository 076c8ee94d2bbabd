"""`--record-requests`: one JSON line per forwarded request body, for replaying what an agent asked.

Bodies as the client sent them, never headers, so no credential of ours can be in it. Next: forward.py.
"""

import base64
import contextlib
import json
import os
from pathlib import Path

from egress_proxy.core.seams import Now
from egress_proxy.core.timestamp import timestamp
from egress_proxy.proxy.audit import open_private

# A model's context fits; an upload of gigabytes does not fill memory or disk. The line says what was cut.
BODY_LIMIT_BYTES = 4 * 1024 * 1024


class Recording:
    """One request's body while it streams by."""

    __slots__ = ("_kept", "total_bytes")

    def __init__(self) -> None:
        self._kept = bytearray()
        self.total_bytes = 0

    def feed(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self._kept += data[: BODY_LIMIT_BYTES - len(self._kept)]

    def fields(self) -> dict[str, str | int | bool]:
        body = bytes(self._kept)
        cut = self.total_bytes > len(body)
        try:
            text, encoding = body.decode("utf-8"), "utf-8"
        except UnicodeDecodeError:
            text, encoding = base64.b64encode(body).decode(), "base64"
        return {"body": text, "encoding": encoding, "body_bytes": self.total_bytes, "truncated": cut}


class Recorder:
    """Appends to a file of mode 0600, in a folder that is made (0700) where there is none, as hosts expect.

    Raises OSError when it cannot be opened or written.
    """

    def __init__(self, path: Path, now: Now) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = open_private(path)
        self._now = now

    def write(self, request_id: str, method: str, host: str, path: bytes, recording: Recording) -> None:
        line = json.dumps(
            {
                "time": timestamp(self._now()),
                "request_id": request_id,
                "method": method,
                "host": host,
                "path": path.decode("ascii"),
                **recording.fields(),
            }
        )
        self._append(line.encode() + b"\n")

    def _append(self, line: bytes) -> None:
        end, rest = os.fstat(self._descriptor).st_size, line
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)  # a full disk took a part: no half line stays
            raise

    def close(self) -> None:
        os.close(self._descriptor)
