"""`--record-requests`: one JSON line per forwarded request body, for replaying what an agent asked.

Bodies as the client sent them, never headers, so no credential of ours can be in it. Next: forward.py.
"""

import base64
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from egress_proxy.core.seams import Now

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
        return {"body": text, "encoding": encoding, "bytes": self.total_bytes, "truncated": cut}


class Recorder:
    """Appends to a file of mode 0600. Raises OSError when it cannot be opened or written."""

    def __init__(self, path: Path, now: Now) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, 0o600)
        self._now = now

    def write(self, request_id: str, method: str, host: str, path: bytes, recording: Recording) -> None:
        line = json.dumps(
            {
                "time": datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="milliseconds"),
                "request_id": request_id,
                "method": method,
                "host": host,
                "path": path.decode("ascii"),
                **recording.fields(),
            }
        )
        rest = line.encode() + b"\n"
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def close(self) -> None:
        os.close(self._descriptor)
