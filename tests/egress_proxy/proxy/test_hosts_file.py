"""Rules of names that the machine settles: the hosts file as it is now, and localhost without one.

Real files. That nothing is asked for such names is in test_name_cache.py.
See egress_proxy/proxy/hosts_file.py.
"""

import os
import time
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.host import Name
from egress_proxy.proxy import hosts_file
from egress_proxy.proxy.hosts_file import HOSTS_PATH, HostsFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hosts"


def listed(hosts: HostsFile, name: str) -> list[str]:
    return [str(address) for address in hosts.addresses(Name(name))]


def of(path: Path, text: str | bytes) -> HostsFile:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return HostsFile(path)


def test_the_machines_own_file_is_read() -> None:
    assert HostsFile().path == HOSTS_PATH == Path("/etc/hosts")


def test_a_name_has_the_addresses_of_its_lines_in_their_order(path: Path) -> None:
    hosts = of(path, "192.0.2.1 a.example\n2001:db8::1 a.example\n192.0.2.2 b.example\n192.0.2.3 a.example\n")
    assert listed(hosts, "a.example") == ["192.0.2.1", "2001:db8::1", "192.0.2.3"]
    assert listed(hosts, "b.example") == ["192.0.2.2"]


def test_a_name_that_is_not_listed_has_none(path: Path) -> None:
    hosts = of(path, "192.0.2.1 a.example\n")
    for name in ("b.example", "x.a.example", "example", "a.example.org"):
        assert listed(hosts, name) == []


def test_every_name_of_a_line_counts_in_any_case_with_tabs_and_comments(path: Path) -> None:
    hosts = of(
        path, "# 192.0.2.9 commented\n\t192.0.2.1\tA.Example  b.example.\t # c.example\n\n192.0.2.2#\n"
    )
    assert listed(hosts, "a.example") == ["192.0.2.1"]
    assert listed(hosts, "b.example") == ["192.0.2.1"]
    assert listed(hosts, "c.example") == []
    assert listed(hosts, "commented") == []


def test_an_address_that_is_listed_twice_is_tried_once(path: Path) -> None:
    hosts = of(path, "192.0.2.1 a.example a.example\n192.0.2.1 a.example\n")
    assert listed(hosts, "a.example") == ["192.0.2.1"]


@pytest.mark.parametrize(
    "line",
    [
        "fe80::1%eth0 a.example",  # a scope is of use on this machine only
        "127.1 a.example",
        "0x7f.0.0.1 a.example",
        "2130706433 a.example",
        "[::1] a.example",
        "192.0.2.1:80 a.example",
        "a.example 192.0.2.1",
        "１２７.0.0.1 a.example",
        "192.0.2.1",
        "",
    ],
)
def test_a_line_without_a_plain_address_says_nothing(line: str, path: Path) -> None:
    assert listed(of(path, f"{line}\n192.0.2.2 b.example\n"), "a.example") == []
    assert listed(HostsFile(path), "b.example") == ["192.0.2.2"]


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_a_line_feed_ends_a_line(end: str, path: Path) -> None:
    """What an editor takes for a line end must not turn the rest of a comment into an entry."""
    assert listed(of(path, f"# note{end}192.0.2.1 a.example\n"), "a.example") == []


def test_line_ends_of_another_system_are_no_part_of_a_name(path: Path) -> None:
    assert listed(of(path, "192.0.2.1 a.example\r\n192.0.2.2 b.example\r\n"), "a.example") == ["192.0.2.1"]


def test_bytes_that_are_no_text_hide_no_other_line(path: Path) -> None:
    hosts = of(path, b"\xff\xfe\x00 junk\n192.0.2.1 a.example caf\xe9\n")
    assert listed(hosts, "a.example") == ["192.0.2.1"]


# localhost


@pytest.mark.parametrize("name", ["localhost", "app.localhost", "a.b.localhost"])
def test_localhost_is_this_machine_without_a_file(name: str, path: Path) -> None:
    assert listed(HostsFile(path), name) == ["127.0.0.1", "::1"]


def test_localhost_is_what_the_file_says_if_it_says_something(path: Path) -> None:
    hosts = of(path, "127.0.0.1 localhost\n127.0.0.9 app.localhost\n")
    assert listed(hosts, "localhost") == ["127.0.0.1"]
    assert listed(hosts, "app.localhost") == ["127.0.0.9"]
    assert listed(hosts, "other.localhost") == ["127.0.0.1", "::1"]


@pytest.mark.parametrize("name", ["notlocalhost", "localhost.example", "localhost.localdomain"])
def test_names_that_only_look_like_localhost_are_not(name: str, path: Path) -> None:
    assert listed(HostsFile(path), name) == []


# Changes


def test_a_change_is_seen_at_the_next_look(path: Path) -> None:
    hosts = of(path, "192.0.2.1 a.example\n")
    assert listed(hosts, "a.example") == ["192.0.2.1"]
    path.write_text("192.0.2.20 a.example\n")
    assert listed(hosts, "a.example") == ["192.0.2.20"]
    with path.open("a") as file:
        file.write("192.0.2.3 b.example\n")
    assert listed(hosts, "b.example") == ["192.0.2.3"]


def test_a_file_that_is_replaced_in_the_same_moment_is_seen(path: Path, tmp_path: Path) -> None:
    hosts = of(path, "192.0.2.1 a.example\n")
    assert listed(hosts, "a.example") == ["192.0.2.1"]
    facts = path.stat()
    new = tmp_path / "new"
    new.write_text("192.0.2.2 a.example\n")
    os.utime(new, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    new.rename(path)
    assert listed(hosts, "a.example") == ["192.0.2.2"]


def test_a_file_may_come_and_go(path: Path) -> None:
    hosts = HostsFile(path)
    assert listed(hosts, "a.example") == []
    path.write_text("192.0.2.1 a.example\n")
    assert listed(hosts, "a.example") == ["192.0.2.1"]
    path.unlink()
    assert listed(hosts, "a.example") == []
    path.mkdir()
    assert listed(hosts, "a.example") == []


def test_a_file_that_has_not_changed_is_not_read_again(path: Path) -> None:
    hosts = of(path, "192.0.2.1 a.example\n")
    assert listed(hosts, "a.example") == ["192.0.2.1"]
    facts = path.stat()
    with path.open("r+") as file:  # the same file, as long and as old: nobody would do that but a test
        file.write("192.0.2.9")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert listed(hosts, "a.example") == ["192.0.2.1"]


# Size

MANY = 100_000
# No figure to be proud of: ten times what it takes, a third of what it took when one name was quadratic.
READING_CPU_S = 10.0


def numbered(number: int) -> str:
    return str(ip_address(0x0A000000 + number))


@pytest.mark.parametrize(
    ("lines", "name", "count"),
    [
        ((f"0.0.0.0 ads{n}.example" for n in range(MANY)), "ads99999.example", 1),
        ((f"{numbered(n)} host{n}.example" for n in range(MANY)), "host99999.example", 1),
        ((f"{numbered(n)} same.example" for n in range(MANY)), "same.example", MANY),
        (["192.0.2.1 " + " ".join(f"n{n}.example" for n in range(MANY))], "n99999.example", 1),
    ],
    ids=["block list", "many hosts", "one name", "one line"],
)
def test_a_file_of_a_hundred_thousand_entries_is_read_in_time(
    lines: Iterable[str], name: str, count: int, path: Path
) -> None:
    hosts = of(path, "\n".join(lines))
    begun = time.process_time()
    assert len(listed(hosts, name)) == count
    for _ in range(1000):  # one `stat` each: reading it anew would show here
        hosts.addresses(Name("other.example"))
    assert time.process_time() - begun < READING_CPU_S


def test_a_file_beyond_all_measure_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_file, "_LIMIT_BYTES", 40)
    hosts = of(path, "192.0.2.1 a.example\n")
    assert listed(hosts, "a.example") == ["192.0.2.1"]
    path.write_text("192.0.2.1 a.example\n" * 3)
    assert listed(hosts, "a.example") == []


@given(st.binary(max_size=300))
def test_no_file_raises(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any-hosts"
    hosts = of(path, content + b"\n192.0.2.1 a.example\n")
    assert "192.0.2.1" in listed(hosts, "a.example")
