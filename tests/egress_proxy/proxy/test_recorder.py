"""Rules of recorded requests: the body as the client sent it, one line each, and nothing of a credential.

Real files; the full disk is a limit on file size in a child process.
See egress_proxy/proxy/recorder.py.
"""

import base64
import errno
import inspect
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.proxy import recorder
from egress_proxy.proxy.recorder import BODY_LIMIT_BYTES, Recorder, Recording

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


def recorded(*pieces: bytes) -> Recording:
    recording = Recording()
    for piece in pieces:
        recording.feed(piece)
    return recording


def write(path: Path, *recordings: Recording) -> None:
    recorder = Recorder(path, lambda: 1_700_000_000.0)
    for number, recording in enumerate(recordings):
        recorder.write(f"r-{number}", "POST", "api.example", b"/v1/messages?beta=true", recording)
    recorder.close()


def lines(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


def body_of(fields: dict[str, Any]) -> bytes:
    if fields["encoding"] == "base64":
        return base64.b64decode(fields["body"], validate=True)
    assert fields["encoding"] == "utf-8"
    return str(fields["body"]).encode()


# A body


def test_a_body_is_recorded_in_whole_however_it_comes() -> None:
    assert recorded(b'{"a"', b"", b":1}").fields() == {
        "body": '{"a":1}',
        "encoding": "utf-8",
        "body_bytes": 7,
        "truncated": False,
    }
    assert recorded().fields() == {"body": "", "encoding": "utf-8", "body_bytes": 0, "truncated": False}


def test_what_is_no_text_is_recorded_as_base64() -> None:
    fields = recorded(b"\x1f\x8b\x00\xff").fields()
    assert (fields["body"], fields["encoding"]) == ("H4sA/w==", "base64")


@given(st.lists(st.binary(max_size=50), max_size=6))
def test_any_body_can_be_read_back(pieces: list[bytes]) -> None:
    fields = recorded(*pieces).fields()
    assert body_of(fields) == b"".join(pieces)
    assert fields["body_bytes"] == len(b"".join(pieces))


@pytest.mark.parametrize("over", [-1, 0, 1, 70_000])
def test_a_body_beyond_the_limit_is_cut_counted_and_marked(
    over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "BODY_LIMIT_BYTES", 100_000)
    recording = recorded(*[b"x" * 10_000] * 9, b"y" * (10_000 + over))
    fields = recording.fields()
    assert fields["body_bytes"] == 100_000 + over
    assert fields["truncated"] is (over > 0)
    assert len(body_of(fields)) == min(100_000, 100_000 + over)


def test_an_upload_of_gigabytes_is_not_held() -> None:
    recording, piece = Recording(), b"x" * 1024 * 1024
    for _ in range(2048):
        recording.feed(piece)
    fields = recording.fields()
    assert fields["body_bytes"] == 2048 * 1024 * 1024
    assert len(body_of(fields)) == BODY_LIMIT_BYTES


def test_a_text_that_is_cut_within_a_letter_can_still_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "BODY_LIMIT_BYTES", 5)
    assert body_of(recorded("aßßß".encode()).fields()) == "aßß".encode()
    assert body_of(recorded("ßßß".encode()).fields()) == "ßßß".encode()[:5]


# A line


def test_a_line_says_what_was_asked_when_and_of_whom(path: Path) -> None:
    write(path, recorded(b"hello"))
    assert lines(path) == [
        {
            "time": "2023-11-14T22:13:20.000+00:00",
            "request_id": "r-0",
            "method": "POST",
            "host": "api.example",
            "path": "/v1/messages?beta=true",
            "body": "hello",
            "encoding": "utf-8",
            "body_bytes": 5,
            "truncated": False,
        }
    ]


def test_headers_have_no_way_into_it() -> None:
    """By signature: a credential of ours is a header, and none is handed in."""
    assert set(inspect.signature(Recorder.write).parameters) == {
        "self",
        "request_id",
        "method",
        "host",
        "path",
        "recording",
    }


@pytest.mark.parametrize("body", [b"a\nb\r\n", b"\x1b[2J", "\u2028\x85".encode(), b'"}\n{"time":"forged"}'])
def test_no_body_makes_a_line_or_reaches_a_terminal(body: bytes, path: Path) -> None:
    write(path, recorded(body), recorded(b"next"))
    assert [body_of(line) for line in lines(path)] == [body, b"next"]
    assert all(0x20 <= byte < 0x7F or byte == 0x0A for byte in path.read_bytes())


# The file


def test_lines_are_added_to_what_is_there(path: Path) -> None:
    write(path, recorded(b"1"), recorded(b"2"))
    write(path, recorded(b"3"))
    assert [line["body"] for line in lines(path)] == ["1", "2", "3"]


@pytest.mark.parametrize("given_mode", [None, 0o644, 0o660])
def test_nobody_else_can_read_it(given_mode: int | None, path: Path) -> None:
    if given_mode is not None:
        path.touch()
        path.chmod(given_mode)
    write(path, recorded(b"hello"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_symlink_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "aim")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        write(path)
    assert not (tmp_path / "aim").exists()


def test_a_folder_that_is_missing_is_made_for_no_other_eyes(tmp_path: Path) -> None:
    path = tmp_path / "state" / "requests" / "today.jsonl"
    write(path, recorded(b"hello"))
    assert [line["body"] for line in lines(path)] == ["hello"]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    write(tmp_path / "requests.jsonl")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_path_that_cannot_be_written_fails_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        write(tmp_path / "file" / "requests.jsonl")
    with pytest.raises(IsADirectoryError):
        write(tmp_path)


FULL = """
import resource, sys
from pathlib import Path
from egress_proxy.proxy.recorder import Recorder, Recording
path = Path(sys.argv[1])
recorder, hard = Recorder(path, lambda: 0.0), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for room in (50, 10**9):
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        recorder.write(str(room), "POST", "api.example", b"/", Recording())
    except OSError as error:
        print(error.strerror)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
"""


def test_a_disk_that_fills_up_leaves_no_half_line(path: Path) -> None:
    argv = [sys.executable, "-c", FULL, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=20, check=False)
    assert (done.stdout, done.stderr) == (os.strerror(errno.EFBIG) + "\n", "")
    assert [line["request_id"] for line in lines(path)] == [str(10**9)]
