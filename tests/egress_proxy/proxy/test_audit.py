"""Rules of the audit log: every line whole, chained to the one before it, for no eyes but the owner's.

Real files; the full disk is a limit on file size in a child process. What may be recorded: test_events.py.
See egress_proxy/proxy/audit.py.
"""

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.access import Client, Door
from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided, Event, Reloaded, ServiceChanged
from egress_proxy.core.host import parse_authority
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.audit import FIRST_PREVIOUS, AuditLog, OnError

ROOT = Path(__file__).resolve().parents[3]
NOW = 1_700_000_000.5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def full() -> Iterator[Path]:
    """A device that is always full, given back as it was whatever the product did to it."""
    device = Path("/dev/full")
    before = mode(device)
    yield device
    if mode(device) != before:
        device.chmod(before)


def opened(path: Path, on_error: OnError = OnError.REFUSE) -> AuditLog:
    return AuditLog(path, on_error, lambda: NOW)


def event(label: str = "", detail: str = "") -> Decided:
    return Decided(
        request_id="r-1",
        client=Client("build", label),
        peer="127.0.0.1:5",
        door=Door.TUNNEL,
        method="CONNECT",
        target=parse_authority("a.example:443"),
        status=403,
        reason=Reason.NOT_LISTED,
        detail=detail,
    )


def write(path: Path, *events: Event) -> None:
    log = opened(path)
    for one in events:
        log.write(one)
    log.close()


def chain(path: Path) -> list[dict[str, Any]]:
    """The records of a log whose every line holds the hash of the one before it."""
    content = path.read_bytes()
    assert content == b"" or content.endswith(b"\n")
    previous = FIRST_PREVIOUS
    records: list[dict[str, Any]] = []
    for line in content.splitlines():
        record = json.loads(line)
        assert record["prev"] == previous
        assert record["seq"] == len(records)
        previous = hashlib.sha256(line).hexdigest()
        records.append(record)
    return records


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# A line


def test_a_line_tells_what_happened_when_and_after_what(path: Path) -> None:
    write(path, event("agent"), ServiceChanged("stopped", "SIGTERM"))
    first, second = chain(path)
    assert list(first)[:4] == ["seq", "time", "kind", "verdict"]
    assert first["time"] == "2023-11-14T22:13:20.500+00:00"
    assert (first["kind"], first["verdict"], first["reason"]) == ("decision", "deny", "not_listed")
    assert (first["client"], first["label"], first["target"]) == ("build", "agent", "a.example:443")
    assert (second["kind"], second["change"], second["seq"]) == ("service", "stopped", 1)


def test_a_changed_line_breaks_the_chain(path: Path) -> None:
    write(path, event(), event(), event())
    path.write_bytes(path.read_bytes().replace(b"a.example", b"b.example", 1))
    with pytest.raises(AssertionError):
        chain(path)


def test_a_line_that_was_taken_out_breaks_the_chain(path: Path) -> None:
    write(path, event(), event(), event())
    first, _, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + third)
    with pytest.raises(AssertionError):
        chain(path)


def test_a_line_is_in_the_file_when_write_returns(path: Path) -> None:
    log = opened(path)
    for count in range(1, 4):
        log.write(event())
        assert len(chain(path)) == count
    log.close()


@pytest.mark.parametrize(
    "text",
    ["a\n{}", "\r\n", "\x1b[2J\x1b]0;owned\x07", "\u2028", "\x85", "\x00", "\x9b31m", "\udcff", '"}\\'],
)
def test_no_text_can_make_a_line_or_reach_a_terminal(text: str, path: Path) -> None:
    write(path, event(label=text, detail=text), event())
    first, _ = chain(path)
    assert (first["label"], first["detail"]) == (text, text)
    assert all(0x20 <= byte < 0x7F or byte == 0x0A for byte in path.read_bytes())


@given(st.text(), st.text())
def test_whatever_is_recorded_is_one_line_of_printable_ascii(
    tmp_path_factory: pytest.TempPathFactory, label: str, detail: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.unlink(missing_ok=True)
    write(path, event(label, detail))
    (record,) = chain(path)
    assert (record["label"], record["detail"]) == (label, detail)
    assert path.read_bytes().count(b"\n") == 1
    assert all(0x20 <= byte < 0x7F for byte in path.read_bytes()[:-1])


def test_events_that_are_written_together_are_lines_of_their_own(path: Path) -> None:
    write(path, event())
    log = opened(path)
    log.write(event("a"), event("b"), event("c"))
    log.write()
    log.write(event("d"))
    log.close()
    assert [record["label"] for record in chain(path)] == ["", "a", "b", "c", "d"]


# The file


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_nobody_else_can_read_it(umask: int, path: Path) -> None:
    before = os.umask(umask)
    try:
        write(path, event())
    finally:
        os.umask(before)
    assert mode(path) == 0o600


@pytest.mark.parametrize("given_mode", [0o644, 0o666, 0o640])
def test_a_file_that_others_could_read_is_closed_to_them(given_mode: int, path: Path) -> None:
    path.touch()
    path.chmod(given_mode)
    write(path, event())
    assert mode(path) == 0o600


def test_what_is_no_file_is_left_as_it_is(path: Path) -> None:
    """As root, `--audit /dev/null` must not take the device away from everybody else."""
    os.mkfifo(path)
    path.chmod(0o666)
    write(path, event())
    assert mode(path) == 0o666


def test_a_symlink_is_not_followed(path: Path, tmp_path: Path) -> None:
    """Somebody who may write to the folder must not choose which file of ours is written to."""
    aim = tmp_path / "aim"
    path.symlink_to(aim)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        opened(path)
    assert not aim.exists()


def test_a_path_that_cannot_be_written_fails_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "missing" / "audit.jsonl")
    with pytest.raises(IsADirectoryError):
        opened(tmp_path)


LIST_OPEN = "import os; print([os.readlink(f.path) for f in os.scandir('/proc/self/fd')])"


def test_a_child_process_does_not_get_the_file(path: Path) -> None:
    log = opened(path)
    argv = [sys.executable, "-c", LIST_OPEN]
    done = subprocess.run(argv, capture_output=True, text=True, close_fds=False, timeout=20, check=True)
    log.close()
    assert "pipe:" in done.stdout
    assert str(path) not in done.stdout


def test_closing_twice_is_harmless_and_writing_then_is_refused(path: Path) -> None:
    log = opened(path)
    log.close()
    log.close()
    with pytest.raises(AuditUnavailable):
        log.write(event())
    assert chain(path) == []


# Starting again


def test_a_restart_goes_on_with_the_chain(path: Path) -> None:
    for _ in range(3):
        write(path, event(), event())
    assert len(chain(path)) == 6


def test_a_restart_after_a_very_long_line_goes_on_with_the_chain(path: Path) -> None:
    write(path, event(), Reloaded("x" * 300_000, 0))
    write(path, event())
    assert len(chain(path)) == 3


def test_a_restart_of_a_log_with_one_very_long_line_goes_on_with_the_chain(path: Path) -> None:
    write(path, Reloaded("x" * 300_000, 0))
    write(path, event())
    assert len(chain(path)) == 2


@pytest.mark.parametrize("size", range(65_534, 65_539))
def test_a_restart_finds_the_last_line_wherever_it_begins(size: int, path: Path) -> None:
    write(path, event(), Reloaded("", 0))
    short = len(path.read_bytes().splitlines()[1])
    path.unlink()
    write(path, event(), Reloaded("x" * (size - short), 0))
    assert len(path.read_bytes().splitlines()[1]) == size
    write(path, event())
    assert len(chain(path)) == 3


@pytest.mark.parametrize("kept", [1, 10, 100, -1])
def test_a_torn_last_line_stays_and_the_chain_goes_on_from_it(kept: int, path: Path) -> None:
    """The machine crashed in the middle. Whoever verifies sees the torn line, and nothing else wrong."""
    write(path, event(), event())
    whole, torn = path.read_bytes().splitlines(keepends=True)
    torn = torn[:kept]
    path.write_bytes(whole + torn)
    write(path, event(), event())
    lines = path.read_bytes().splitlines()
    assert lines[:2] == [whole.rstrip(), torn]
    third, fourth = map(json.loads, lines[2:])
    assert third["prev"] == hashlib.sha256(torn).hexdigest()
    assert fourth["prev"] == hashlib.sha256(lines[2]).hexdigest()
    assert [third["seq"], fourth["seq"]] == [2, 3]


@pytest.mark.parametrize(
    "content",
    [b"\x00\x01\xff", b"{}", b"[]", b'{"seq":"x"}', b'{"seq":null}', b'{"seq":Infinity}', b"\n", b"\n\n"],
)
def test_a_file_that_is_no_log_is_chained_to_as_it_is(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    write(path, event())
    *before, last = path.read_bytes().split(b"\n")[:-1]
    assert b"\n".join(before).rstrip(b"\n") == content.rstrip(b"\n")
    assert json.loads(last)["prev"] == hashlib.sha256(before[-1]).hexdigest()


# Opening anew


def test_after_the_file_was_moved_away_a_new_one_begins(path: Path, tmp_path: Path) -> None:
    log = opened(path)
    log.write(event("before"))
    moved = path.rename(tmp_path / "audit.jsonl.1")
    log.write(event("still the old one"))
    log.reopen()
    log.write(event("after"))
    log.close()
    assert [record["label"] for record in chain(moved)] == ["before", "still the old one"]
    assert [record["label"] for record in chain(path)] == ["after"]
    assert mode(path) == 0o600


def test_opening_the_same_file_anew_goes_on_with_its_chain(path: Path) -> None:
    log = opened(path)
    for _ in range(3):
        log.write(event())
        log.reopen()
    log.close()
    assert len(chain(path)) == 3


def test_a_file_that_cannot_be_opened_anew_leaves_the_old_one(path: Path, tmp_path: Path) -> None:
    log = opened(path)
    log.write(event())
    moved = path.rename(tmp_path / "moved")
    path.symlink_to(moved)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        log.reopen()
    log.write(event())
    log.close()
    assert len(chain(moved)) == 2


def test_opening_anew_costs_no_descriptor(path: Path) -> None:
    log = opened(path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        log.reopen()
    assert len(os.listdir("/proc/self/fd")) == before
    log.close()


def test_one_file_has_one_writer(path: Path, tmp_path: Path) -> None:
    log = opened(path)
    log.write(event())
    log.reopen()  # by which the lock is not lost
    with pytest.raises(OSError, match="another proxy writes to it; name another file"):
        opened(path)
    log.write(event())
    path.rename(tmp_path / "moved")
    other = opened(path)  # which is another file by now
    other.close()
    log.close()
    log = opened(tmp_path / "moved")
    log.close()
    assert len(chain(tmp_path / "moved")) == 2


# A disk that takes no more


def test_what_cannot_be_written_is_refused(full: Path) -> None:
    log = opened(full)
    with pytest.raises(AuditUnavailable):
        log.write(event())
    log.close()


def test_what_cannot_be_written_is_let_through_and_told_where_the_settings_say_so(full: Path) -> None:
    log = opened(full, OnError.CONTINUE)
    assert not log.write(event())
    log.close()


FULL = """
import resource, sys
from pathlib import Path
from egress_proxy.core.events import ServiceChanged
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.audit import AuditLog, OnError
path, on_error = Path(sys.argv[1]), OnError(sys.argv[2])
log = AuditLog(path, on_error, lambda: 0.0)
log.write(ServiceChanged("before", ""))
size, hard = path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for room in range(0, 2 * size + 20, 7):
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, hard))
    try:
        is_written = log.write(ServiceChanged("full", ""), ServiceChanged("full", ""))
        outcome = "written" if is_written else "continued"
    except AuditUnavailable:
        outcome = "refused"
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print(outcome, path.read_bytes()[-1:] == b"\\n")
log.write(ServiceChanged("after", ""))
"""


@pytest.mark.parametrize(
    ("on_error", "failed"), [(OnError.REFUSE, "refused"), (OnError.CONTINUE, "continued")]
)
def test_a_disk_that_fills_up_leaves_no_half_line_and_an_unbroken_chain(
    on_error: OnError, failed: str, path: Path
) -> None:
    """Room for a part of two lines, in steps, up to the whole of them; then there is room again."""
    argv = [sys.executable, "-c", FULL, str(path), on_error]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=20, check=False)
    assert done.stderr == ""
    outcomes = [line.split() for line in done.stdout.splitlines()]
    assert {outcome for outcome, _ in outcomes} == {failed, "written"}
    assert outcomes[0][0] == failed
    assert {is_whole for _, is_whole in outcomes} == {"True"}
    written = sum(outcome == "written" for outcome, _ in outcomes)
    assert [record["change"] for record in chain(path)] == ["before", *["full", "full"] * written, "after"]


TORN = """
import resource, sys
from pathlib import Path
from egress_proxy.proxy.audit import AuditLog, OnError
path = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, resource.RLIM_INFINITY))
try:
    AuditLog(path, OnError.CONTINUE, lambda: 0.0)
except OSError as error:
    print(error.strerror)
"""


def test_a_torn_line_that_cannot_be_ended_is_a_failure_at_the_start(path: Path) -> None:
    """Else the next line would be glued to it."""
    path.write_bytes(b'{"seq":0,"ti')
    argv = [sys.executable, "-c", TORN, str(path)]
    # Nothing may be written in there, not even what it covers.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, env=env, timeout=20, check=False)
    assert (done.stdout, done.stderr) == (os.strerror(errno.EFBIG) + "\n", "")
    assert path.read_bytes() == b'{"seq":0,"ti'
