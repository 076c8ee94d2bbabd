"""What of our streams the command of `run` gets itself, and what is copied: whole, and without a hang."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from egress_proxy.cli import run_streams
from egress_proxy.cli.run_streams import STDERR, STDIN, TAIL_BYTES, CopiedStderr, given_stdin
from tests.support.deadline import DEFAULT_S
from tests.support.program import REPOSITORY

MORE_THAN_A_PIPE = 300_000


@contextmanager
def as_stream(number: int, descriptor: int) -> Iterator[None]:
    """``descriptor`` in place of one of the streams of this process."""
    kept = os.dup(number)
    os.dup2(descriptor, number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


def read_all(descriptor: int) -> bytes:
    return b"".join(iter(lambda: os.read(descriptor, 65_536), b""))


def test_a_file_comes_by_a_pipe_whole(tmp_path: Path) -> None:
    content = os.urandom(MORE_THAN_A_PIPE)
    (tmp_path / "file").write_bytes(content)
    with open(tmp_path / "file", "rb") as file, as_stream(STDIN, file.fileno()), given_stdin() as given:
        assert given is not None
        assert read_all(given) == content
        assert os.readlink(f"/proc/self/fd/{given}").startswith("pipe:")


def test_what_the_command_leaves_unread_of_a_file_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(MORE_THAN_A_PIPE))
    with open(tmp_path / "file", "rb") as file, as_stream(STDIN, file.fileno()), given_stdin() as given:
        assert given is not None
        assert os.read(given, 3) == bytes(3)


def test_a_socket_comes_by_a_pipe_and_one_that_says_nothing_holds_nobody_up() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, as_stream(STDIN, theirs.fileno()), given_stdin() as given:
        assert given is not None
        ours.sendall(b"hello")
        assert os.read(given, 10) == b"hello"


def test_a_folder_leads_nowhere(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    with as_stream(STDIN, folder), given_stdin() as given:
        assert given is not None
        assert read_all(given) == b""
    os.close(folder)


@pytest.mark.parametrize("kind", ["pipe", "null", "terminal"])
def test_pipes_and_terminals_are_handed_on(kind: str) -> None:
    match kind:
        case "pipe":
            opened = os.pipe()
        case "terminal":
            opened = os.openpty()
        case _:
            opened = (os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_RDONLY))
    with as_stream(STDIN, opened[0]), given_stdin() as given:
        assert given is None
    for descriptor in opened:
        os.close(descriptor)


async def copied(*said: bytes, sink: int) -> bytes:
    with as_stream(STDERR, sink), CopiedStderr() as stderr:
        for words in said:
            os.write(stderr.child_end, words)
        stderr.started()
        return await stderr.tail()


async def test_stderr_is_copied_and_its_end_is_kept() -> None:
    read_end, write_end = os.pipe()
    assert await copied(b"one\n", b"two\n", sink=write_end) == b"one\ntwo\n"
    os.close(write_end)
    assert read_all(read_end) == b"one\ntwo\n"
    os.close(read_end)


async def test_where_nobody_reads_any_more_the_command_can_still_say_all() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    said = [bytes([number]) * 30_000 for number in range(65, 75)]
    tail = await copied(*said, sink=write_end)
    assert tail == b"".join(said)[-TAIL_BYTES:]
    os.close(write_end)


async def test_a_reader_that_does_not_block_gets_all_the_same() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    got = bytearray()
    reader = threading.Thread(target=lambda: got.extend(read_all(read_end)))
    reader.start()
    said = [bytes([number]) * 60_000 for number in range(65, 75)]
    await copied(*said, sink=write_end)
    os.close(write_end)
    reader.join(DEFAULT_S)
    assert bytes(got) == b"".join(said)
    os.close(read_end)


async def test_who_keeps_stderr_open_after_the_end_is_not_waited_for() -> None:
    read_end, write_end = os.pipe()
    with as_stream(STDERR, write_end), CopiedStderr() as stderr:
        left_behind = os.dup(stderr.child_end)
        os.write(left_behind, b"last words")
        stderr.started()
        assert await stderr.tail() == b"last words"
    for descriptor in (left_behind, read_end, write_end):
        os.close(descriptor)


async def test_who_reads_nothing_can_be_given_up() -> None:
    read_end, write_end = os.pipe()
    with as_stream(STDERR, write_end), CopiedStderr() as stderr:
        for _ in range(5):
            os.write(stderr.child_end, bytes(32_768))
        stderr.started()
        assert await stderr.tail(0.01) == bytes(TAIL_BYTES)
        read = 0
        while read < 5 * 32_768:
            read += len(os.read(read_end, 65_536))
        assert await stderr.tail() == bytes(TAIL_BYTES)
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_streams_that_are_closed_stay_useless_and_are_taken_by_nothing_else(closed: tuple[int, ...]) -> None:
    script = (
        "import os; from egress_proxy.cli.run_streams import fill_closed_streams; fill_closed_streams();"
        " new = os.open('/etc/passwd', os.O_RDONLY); assert new > 2, new\n"
        f"for number in {closed}:\n"
        "  assert os.readlink(f'/proc/self/fd/{number}') == '/dev/null'; assert os.get_inheritable(number)\n"
        "  try: (os.read(0, 1) if number == 0 else os.write(number, b'x'))\n"
        "  except OSError: continue\n"
        "  os._exit(3)\n"
        "os._exit(0)"
    )
    redirections = " ".join(f"{number}>&-" for number in closed)
    done = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {redirections}', sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert done.returncode == 0


def test_streams_that_are_open_stay_as_they_are() -> None:
    before = [os.fstat(number) for number in (0, 1, 2)]
    run_streams.fill_closed_streams()
    assert [os.fstat(number).st_ino for number in (0, 1, 2)] == [status.st_ino for status in before]
