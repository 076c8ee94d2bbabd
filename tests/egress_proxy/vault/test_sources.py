"""Secret sources: what each kind reads, trims and refuses, and that no refusal holds a value.

Real files and pipes, no network. See egress_proxy/vault/sources.py.
"""

import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress_proxy.vault.secret import LIMIT_CHARACTERS
from egress_proxy.vault.sources import (
    SecretSource,
    SecretUnavailable,
    SourceKind,
    SourceName,
    is_open_to_all,
    open_source,
    parse_source,
)


def reading(text: str, environ: dict[str, str] | None = None) -> SecretSource:
    return open_source(parse_source(text), environ or {})


def refusal(text: str, environ: dict[str, str] | None = None) -> str:
    """The message; whatever else a log could print of the exception must not show a value."""
    with pytest.raises(SecretUnavailable) as refused:
        reading(text, environ)
    chain: list[BaseException | None] = [refused.value]
    while (link := chain[-1]) is not None:
        assert "CANARY" not in repr(link) + repr(vars(link)) + repr(getattr(link, "object", ""))
        chain.append(link.__cause__ or link.__context__)
    assert "CANARY" not in "".join(traceback.format_exception(refused.value))
    return str(refused.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "provider"
    path.touch(mode=0o600)
    return path


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends; the reading one is the source's to close."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


@pytest.mark.parametrize(
    ("text", "kind", "rest"),
    [
        ("env:STEERABLE_EGRESS_SECRET", SourceKind.ENV, "STEERABLE_EGRESS_SECRET"),
        ("env:_a1", SourceKind.ENV, "_a1"),
        ("file:/run/secrets/provider", SourceKind.FILE, "/run/secrets/provider"),
        ("file:/a b/c:d é", SourceKind.FILE, "/a b/c:d é"),
        ("fd:3", SourceKind.FD, "3"),
        ("fd:63", SourceKind.FD, "63"),
    ],
)
def test_a_source_is_read_as_kind_and_rest(text: str, kind: SourceKind, rest: str) -> None:
    assert parse_source(text) == SourceName(kind, rest)
    assert str(parse_source(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sk-CANARY", "a secret is given by its source: env:NAME, file:PATH or fd:N"),
        ("sk:CANARY", "a secret is given by its source: env:NAME, file:PATH or fd:N"),
        ("", "a secret is given by its source: env:NAME, file:PATH or fd:N"),
        ("ENV:CANARY", "a secret is given by its source: env:NAME, file:PATH or fd:N"),
        (" env:CANARY", "a secret is given by its source: env:NAME, file:PATH or fd:N"),
        ("env:sk-CANARY-123", "secret source env: takes the name of a variable"),
        ("env:", "secret source env: takes the name of a variable"),
        ("env:1CANARY", "secret source env: takes the name of a variable"),
        ("env:CANARY\n", "secret source env: takes the name of a variable"),
        ("file:CANARY", "secret source file: takes an absolute path"),
        ("file:/a\nCANARY", "secret source file: takes an absolute path"),
        ("file:/a\0CANARY", "secret source file: takes an absolute path"),
        ("file:/", "secret source file: takes an absolute path"),
        *(
            (f"fd:{n}", "secret source fd: takes the number of a descriptor from 3 up")
            for n in ("", "0", "1", "2", "03", "-3", "+3", "3 ", "٣", "3.0", "9" * 5000)
        ),
    ],
)
def test_what_is_no_source_is_refused_unquoted(text: str, message: str) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize("kind", ["credential", "command", "keyring"])
def test_a_kind_to_come_is_named_with_the_kinds_there_are(kind: str) -> None:
    assert refusal(f"{kind}:CANARY") == (
        f"secret source {kind}: is not supported yet, use env:NAME, file:PATH or fd:N"
    )


def test_a_variable_is_read_once_so_that_the_environment_can_be_wiped() -> None:
    environ = {"KEY": "sk-1"}
    source = reading("env:KEY", environ)
    environ.clear()
    assert source.current().reveal() == "sk-1"
    assert source.current() is source.current()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "is empty"),
        ("CANARY\n", "holds a line end"),
        ("CANARY\r\nX: 1", "holds a line end"),
        ("CANARY ", "begins or ends with a blank"),
        ("CANARY\udcff", "holds a character that is not ASCII"),
        ("CANARYé", "holds a character that is not ASCII"),
    ],
)
def test_nothing_is_trimmed_from_a_variable(value: str, words: str) -> None:
    assert refusal("env:KEY", {"KEY": value}) == f"secret source env:KEY {words}"


def test_a_variable_that_is_not_set_is_refused_by_name() -> None:
    assert refusal("env:KEY", {"OTHER": "CANARY"}) == "secret source env:KEY is not set"


ONE_LINE_END_LESS = [
    (b"sk-1", "sk-1"),
    (b"sk-1\n", "sk-1"),
    (b"sk-1\r\n", "sk-1"),
    (b"C" * LIMIT_CHARACTERS + b"\r\n", "C" * LIMIT_CHARACTERS),
]
UNFIT_BYTES = [
    (b"", "is empty"),
    (b"\n", "is empty"),
    (b"CANARY\n\n", "holds a line end"),
    (b"CANARY\r", "holds a line end"),
    (b"\nCANARY", "holds a line end"),
    (b"CANARY\r\nX: 1", "holds a line end"),
    (b"CANARY\xff", "holds a character that is not ASCII"),
    (b"\xef\xbb\xbfCANARY", "holds a character that is not ASCII"),
    (b"CANARY\0", "holds a control character"),
    (b"CANARY \n", "begins or ends with a blank"),
    (b"C" * (LIMIT_CHARACTERS + 1), f"is longer than {LIMIT_CHARACTERS} characters"),
    (b"C" * 1_000_000 + b"\n", f"is longer than {LIMIT_CHARACTERS} characters"),
]


@pytest.mark.parametrize(("content", "value"), ONE_LINE_END_LESS)
def test_a_file_loses_one_line_end(file: Path, content: bytes, value: str) -> None:
    file.write_bytes(content)
    assert reading(f"file:{file}").current().reveal() == value


@pytest.mark.parametrize(("content", "words"), UNFIT_BYTES)
def test_an_unfit_file_is_refused_by_its_name(file: Path, content: bytes, words: str) -> None:
    file.write_bytes(content)
    assert refusal(f"file:{file}") == f"secret source file:{file} {words}"


def test_a_file_keeps_its_secret_object_until_it_says_something_else(file: Path) -> None:
    file.write_text("sk-1\n")
    source = reading(f"file:{file}")
    first = source.current()
    file.write_text("sk-1")
    os.utime(file, (1, 1))
    assert source.current() is first
    file.write_text("sk-2")
    assert source.current().reveal() == "sk-2"


def test_a_rotation_that_keeps_size_inode_and_times_is_seen(file: Path) -> None:
    file.write_text("sk-1")
    source, before = reading(f"file:{file}"), file.stat()
    source.current()
    file.write_text("sk-2")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.current().reveal() == "sk-2"


def test_a_rotation_by_a_moved_link_is_seen(tmp_path: Path) -> None:
    """How Kubernetes does it: the path is a link through `..data`, which is replaced as a whole."""
    for folder, value in (("one", "sk-1"), ("two", "sk-2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "key").touch(mode=0o440)
        (tmp_path / folder / "key").write_text(value)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "key").symlink_to("..data/key")
    source = reading(f"file:{tmp_path}/key")
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").replace(tmp_path / "..data")
    assert source.current().reveal() == "sk-2"


def test_a_file_that_is_taken_away_takes_its_secret_along(file: Path) -> None:
    file.write_text("CANARY")
    source = reading(f"file:{file}")
    file.unlink()
    with pytest.raises(SecretUnavailable, match=r"file:\S+ is unreadable: No such file"):
        source.current()


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    message = f"secret source file:{tmp_path}/no is unreadable: No such file or directory"
    assert refusal(f"file:{tmp_path}/no") == message


@pytest.mark.parametrize("mode", [0o602, 0o606, 0o622, 0o666])
def test_a_file_that_every_user_can_replace_is_refused_with_the_remedy(file: Path, mode: int) -> None:
    file.write_text("CANARY")
    file.chmod(mode)
    message = refusal(f"file:{file}")
    assert message == f"secret source file:{file} can be written by every user: chmod o-w it"


@pytest.mark.parametrize(("mode", "is_open"), [(0o400, False), (0o640, False), (0o444, True), (0o644, True)])
def test_a_file_that_every_user_can_read_is_read_and_told_of(file: Path, mode: int, is_open: bool) -> None:
    """Docker and Kubernetes mount secrets so; where that is a mistake, start-up says it."""
    file.write_text("sk-1")
    file.chmod(mode)
    assert reading(f"file:{file}").current().reveal() == "sk-1"
    assert is_open_to_all(parse_source(f"file:{file}")) is is_open


def test_what_is_no_file_is_open_to_nobody(tmp_path: Path) -> None:
    assert not is_open_to_all(parse_source(f"file:{tmp_path}/no"))
    assert not is_open_to_all(parse_source("env:KEY"))


def test_a_file_that_can_be_written_by_every_user_later_is_refused_from_then_on(file: Path) -> None:
    file.write_text("CANARY")
    source = reading(f"file:{file}")
    file.chmod(0o646)
    with pytest.raises(SecretUnavailable, match="written by every user"):
        source.current()


def test_a_folder_is_no_secret_file(tmp_path: Path) -> None:
    assert refusal(f"file:{tmp_path}") == f"secret source file:{tmp_path} is not a regular file"


@pytest.mark.timeout(5)
def test_a_fifo_in_the_place_of_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    message = f"secret source file:{tmp_path}/key is not a regular file"
    assert refusal(f"file:{tmp_path}/key") == message


@pytest.mark.parametrize("outcome", ["read", "refused"])
def test_no_descriptor_is_left_open(file: Path, outcome: str) -> None:
    file.write_text("sk-1")
    file.chmod(0o600 if outcome == "read" else 0o646)
    lowest = os.dup(0)
    os.close(lowest)
    if outcome == "read":
        reading(f"file:{file}")
    else:
        refusal(f"file:{file}")
    following = os.dup(0)
    os.close(following)
    assert following == lowest


@pytest.mark.parametrize(("content", "value"), ONE_LINE_END_LESS)
def test_a_descriptor_loses_one_line_end_and_is_closed(
    pipe: tuple[int, int], content: bytes, value: str
) -> None:
    source_end, writing_end = pipe
    os.write(writing_end, content[:2])
    os.write(writing_end, content[2:])
    os.close(writing_end)
    source = reading(f"fd:{source_end}")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(source_end)
    assert source.current().reveal() == value
    assert source.current() is source.current()


@pytest.mark.parametrize(("content", "words"), UNFIT_BYTES[:-1])
def test_an_unfit_descriptor_is_refused_by_its_number_and_closed(
    pipe: tuple[int, int], content: bytes, words: str
) -> None:
    source_end, writing_end = pipe
    os.write(writing_end, content)
    os.close(writing_end)
    assert refusal(f"fd:{source_end}") == f"secret source fd:{source_end} {words}"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(source_end)


def test_a_descriptor_that_is_not_open_is_refused(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    message = f"secret source fd:{pipe[0]} is unreadable: Bad file descriptor"
    assert refusal(f"fd:{pipe[0]}") == message
