"""What a recipe's words stand for: each opened once, numbered, readable by the child, and closed again."""

import os
import socket
import subprocess
import sys

import pytest

from egress_proxy.sandbox.descriptors import Descriptors
from egress_proxy.sandbox.plan import ARGS, CHANNEL, ERRORS, FILTER, LAUNCH, STATUS, SYNC, Recipe


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def read_by_child(opened: Descriptors, number: str) -> bytes:
    script = f"import os, sys; sys.stdout.buffer.write(os.read({number}, 1 << 20))"
    words = (sys.executable, "-I", "-S", "-c", script)
    return subprocess.run(words, pass_fds=opened.pass_fds, stdout=subprocess.PIPE, check=True).stdout


def test_the_child_reads_what_the_recipe_holds() -> None:
    recipe = Recipe("x", ("run", LAUNCH, FILTER), launch=b"plan\0", program=b"\1\2\3")
    with Descriptors(recipe) as opened:
        assert opened.argv[0] == "run"
        assert read_by_child(opened, opened.argv[1]) == b"plan\0"
        assert read_by_child(opened, opened.argv[2]) == b"\1\2\3"


def test_words_inside_the_arguments_are_numbered_too() -> None:
    recipe = Recipe("x", ("run", ARGS), args=("--seccomp", FILTER, "--bind", "/a b"), program=b"filter")
    with Descriptors(recipe) as opened:
        arguments = read_by_child(opened, opened.argv[1]).split(b"\0")
        assert (arguments[0], arguments[2:]) == (b"--seccomp", [b"--bind", b"/a b", b""])
        assert read_by_child(opened, arguments[1].decode()) == b"filter"


def test_the_channel_is_two_descriptors_of_one_connection() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, Descriptors(Recipe("x", (CHANNEL,), args=(SYNC,)), theirs.fileno()) as opened:
        assert len(opened.pass_fds) == 2
        theirs.close()
        for descriptor in opened.pass_fds:
            os.write(descriptor, b"!")
        assert ours.recv(8) == b"!!"
        opened.close_passed()
        assert ours.recv(1) == b""


def test_errors_and_status_are_read_to_their_end() -> None:
    with Descriptors(Recipe("x", (ERRORS, STATUS))) as opened:
        os.write(int(opened.argv[0]), b"confine x: y\n")
        os.write(int(opened.argv[1]), b'{"exit-code": 0}\n')
        opened.close_passed()
        assert (opened.errors(), opened.status()) == ("confine x: y\n", '{"exit-code": 0}\n')


def test_a_rung_without_a_status_stream_says_so() -> None:
    with Descriptors(Recipe("x", (ERRORS,))) as opened:
        opened.close_passed()
        assert (opened.errors(), opened.status()) == ("", None)


def test_nothing_stays_open() -> None:
    before = open_descriptors()
    with Descriptors(Recipe("x", (ERRORS, STATUS, LAUNCH, FILTER, ARGS))):
        assert open_descriptors() > before
    assert open_descriptors() == before


def test_a_failure_half_way_leaves_nothing_open() -> None:
    before = open_descriptors()
    with pytest.raises(OSError, match="Bad file descriptor"):
        Descriptors(Recipe("x", (ERRORS, CHANNEL)), 999_999)
    assert open_descriptors() == before
