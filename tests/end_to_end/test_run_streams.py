"""`egress-proxy run` and its three streams: all that goes in and out is the command's, to the byte.

A file as stdin comes by a pipe; a stream that is closed stays closed to the command.
"""

from __future__ import annotations

import array
import fcntl
import os
import shlex
import subprocess
import termios
from collections.abc import Iterator

import pytest

from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import BACKENDS, END_S, RunGround
from tests.support.deadline import eventually

LARGE = 20_000_000
A_PIPE = 65_536


@pytest.fixture(scope="module")
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        yield made


def by_shell(ground: RunGround, redirections: str, script: str, *flags: str) -> tuple[int, str, str]:
    """As somebody types it, with its redirections."""
    done = subprocess.run(
        ("sh", "-c", f"{shlex.join(ground.argv('sh', '-c', script, flags=flags))} {redirections}"),
        env=ground.environment,
        cwd=ground.folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=END_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pipe_as_stdin_is_read_to_its_end(ground: RunGround, backend: str) -> None:
    with ground.started("cat", flags=("-q", "--backend", backend), stdin=subprocess.PIPE) as process:
        out, err = process.communicate("line\n" * 100_000, timeout=END_S)
    assert (process.returncode, out, err) == (0, "line\n" * 100_000, "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_file_as_stdin_is_read_whole_and_cannot_be_opened_to_write(ground: RunGround, backend: str) -> None:
    content = "line\n" * 100_000
    file = ground.folder / "stdin.txt"
    file.write_text(content)
    script = "cat; { echo spoilt >/proc/self/fd/0; } 2>/dev/null; { echo spoilt >stdin.txt; } 2>/dev/null"
    code, out, _ = by_shell(ground, "<stdin.txt", script, "-q", "--backend", backend)
    assert code != 0
    assert out == content
    assert file.read_text() == content


def test_a_file_that_the_command_does_not_read_holds_nobody_up(ground: RunGround) -> None:
    (ground.folder / "large").write_bytes(bytes(LARGE))
    assert by_shell(ground, "<large", "exit 3", "-q") == (3, "", "")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("redirections", "code", "out", "err"),
    [
        ("</dev/null", 0, "end of stdin\nout\n", "err\n"),
        ("<&-", 0, "no stdin\nout\n", "err\n"),
        (">&-", 1, "", "err\n"),
        ("2>&-", 0, "end of stdin\nout\n", ""),
        ("<&- >&- 2>&-", 1, "", ""),
    ],
)
def test_streams_that_are_closed_or_empty_are_so_for_the_command(
    ground: RunGround, backend: str, redirections: str, code: int, out: str, err: str
) -> None:
    script = (
        "x=$(cat 2>/dev/null) && a='end of stdin' || a='no stdin'; echo err >&2 || :; "
        '{ echo "$a"; echo out; } 2>/dev/null'
    )
    ended = by_shell(ground, redirections, script, "-q", "--backend", backend)
    assert ended == (code, out, err)


@pytest.mark.parametrize("backend", BACKENDS)
def test_much_output_comes_whole_on_both(ground: RunGround, backend: str) -> None:
    script = f"head -c {LARGE} /dev/zero >&2 & head -c {LARGE} /dev/zero; wait"
    redirected = "2>large.err | wc -c"
    code, out, err = by_shell(ground, redirected, script, "-q", "--backend", backend)
    assert (code, int(out), err) == (0, LARGE, "")
    assert (ground.folder / "large.err").stat().st_size == LARGE


def test_a_reader_that_has_seen_enough_ends_the_command(ground: RunGround) -> None:
    code, out, err = by_shell(ground, "| head -n 1", "yes", "-q")
    assert (code, out, err) == (0, "y\n", "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_command_may_close_its_stderr_and_go_on(ground: RunGround, backend: str) -> None:
    script = "echo before >&2; exec 2>&-; echo on; exit 4"
    ran = ground.run("sh", "-c", script, flags=("-q", "--backend", backend))
    assert (ran.code, ran.out, ran.err) == (4, "on\n", "before\n")


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_is_left_with_stderr_open_is_not_waited_for(ground: RunGround, backend: str) -> None:
    script = "setsid sleep 600 & echo said >&2; exit 3"
    ran = ground.run("sh", "-c", script, flags=("-q", "--backend", backend))
    assert (ran.code, ran.err) == (3, "said\n")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_full_stderr_holds_the_command_up_until_it_is_read(ground: RunGround, backend: str) -> None:
    read_end, write_end = os.pipe()
    try:
        script = f"head -c {LARGE // 20} /dev/zero >&2; echo done"
        with ground.started(
            "sh", "-c", script, flags=("-q", "--backend", backend), stderr=write_end
        ) as process:
            os.close(write_end)
            write_end = -1
            eventually(lambda: _is_full(read_end), END_S, "stderr to be full")
            assert process.poll() is None
            read = sum(map(len, iter(lambda: os.read(read_end, 65_536), b"")))
            assert process.stdout is not None
            assert process.stdout.read() == "done\n"
            assert process.wait(END_S) == 0
        assert read == LARGE // 20
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)


def _is_full(read_end: int) -> bool:
    waiting = array.array("i", [0])
    fcntl.ioctl(read_end, termios.FIONREAD, waiting)
    return waiting[0] >= A_PIPE


def test_a_stderr_that_nobody_reads_does_not_keep_it_from_being_ended(ground: RunGround) -> None:
    """The command has ended; the rest of what it said waits for a reader."""
    read_end, write_end = os.pipe()
    script = "head -c 100000 /dev/zero >&2; echo done"
    with ground.started("sh", "-c", script, flags=("-q",), stderr=write_end) as process:
        os.close(write_end)
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        eventually(lambda: _is_full(read_end), END_S, "stderr to be full")
        process.terminate()
        assert process.wait(END_S) in (0, 143, -15)  # before the end, at the end, behind it
    os.close(read_end)
