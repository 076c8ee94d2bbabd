"""What a launcher is told, read: the plan, as values. Decides and does nothing.

Standard library alone, imported by launcher.py wherever that runs; plan.py writes what is read here. Next:
launcher.py (carries a plan out), outer.py (reads a recipe of the same form).
"""

import os


def entries(encoded: bytes) -> list[tuple[bytes, bytes]]:
    """What plan.encode was given."""
    parts = encoded.split(b"\0")
    if parts[-2:] != [b"end=", b""]:
        raise ValueError("it is cut short")
    return [(key, value) for key, _, value in (part.partition(b"=") for part in parts[:-2])]


class Plan:
    """The entries of plan.py's LaunchPlan."""

    def __init__(self, encoded: bytes) -> None:
        self.port: int | None = None
        self.answer_ms = 0
        self.ruleset: list[int] = []
        self.paths: list[tuple[int, bytes, bool]] = []
        self.ports: list[tuple[int, int]] = []
        self.program = b""
        self.cwd: bytes | None = None
        self.new_session = False
        self.private_tmp: bytes | None = None
        self.mount_points: list[bytes] = []
        self.writable_places: dict[bytes, bytes] = {}
        self._at = b""
        for key, value in entries(encoded):
            self._take(key, value)

    def _take(self, key: bytes, value: bytes) -> None:
        match key:
            case b"port":
                self.port = int(value)
            case b"answer_ms":
                self.answer_ms = int(value)
            case b"ruleset":
                self.ruleset = [int(number) for number in value.split(b":")]
            case b"path" | b"path?":
                access, path = value.split(b":", 1)
                self.paths.append((int(access), path, key == b"path"))
            case b"tcp":
                access, port = value.split(b":")
                self.ports.append((int(access), int(port)))
            case b"program":
                self.program = bytes.fromhex(value.decode())
            case b"cwd":
                self.cwd = value
            case b"session":
                self.new_session = True
            case b"tmp":
                self.private_tmp = value
            case b"mount":
                self.mount_points.append(value)
            case b"at":
                self._at = value
            case b"place":
                self.writable_places[self._at] = value
            case _:  # a rule that this file does not know must not be left out
                raise ValueError(f"unknown entry {os.fsdecode(key)}")


def read_plan(descriptor: int) -> Plan:
    with open(descriptor, "rb") as stream:
        return Plan(stream.read())
