"""The pieces that patterns are made of."""

import pytest
import re2

from egress_proxy.safety.pattern import View
from egress_proxy.safety.rule_parts import DISK, ROOTS, none_of, rule


@pytest.mark.parametrize(
    "path", ["/", "/*", "~", "~/*", "~root", "/home", "/home/me", "/usr", "/etc/*", "/var/lib/x", "~/.ssh"]
)
def test_roots(path: str) -> None:
    assert re2.fullmatch(ROOTS, path)


@pytest.mark.parametrize(
    "path", ["/tmp/x", "a", "~/work/x", "/opt/app", "/var/log/x", "/home/me/work", "./build"]
)
def test_what_is_no_root(path: str) -> None:
    assert not re2.fullmatch(ROOTS, path)


def test_disks() -> None:
    assert re2.match(DISK, "/dev/nvme0n1")
    assert not re2.match(DISK, "/dev/null")


def test_a_word_is_none_of_some() -> None:
    pattern = none_of({"ab", "abc", "x/*"})
    assert [
        w
        for w in ("", "a", "ab", "abc", "abcd", "ac", "b", "x", "x/", "x/y", "xy")
        if re2.fullmatch(pattern, w)
    ] == ["", "a", "abcd", "ac", "b", "x", "xy"]


def test_a_rule_is_named_for_its_id() -> None:
    made = rule("a_b", "why", "x", "c", "warning", hits=("x",), misses=("y",))
    assert (made.pattern.label, made.looks_at, made.pattern.platform) == ("a b", View.SHAPE, "unix")
