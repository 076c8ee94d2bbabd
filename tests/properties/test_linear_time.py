"""Time: what a stranger sends is read in time that grows with its length, not with its square.

Far longer than any limit lets through, and bounded by far more than it takes: at this length a quadratic
reader would need minutes. CPU time, so that a busy machine is no failure.
"""

import contextlib
import functools
import time
from collections.abc import Callable

import pytest

from egress_proxy.core.host import HostError, parse_authority
from egress_proxy.core.request import (
    RequestError,
    body_framing,
    judge_opening,
    parse_head,
    path_has_dot_segments,
    split_absolute,
)
from egress_proxy.core.rules import RuleError, Suffix, parse_rule

LENGTH = 1 << 18  # 16 times the limit of a head
BOUND_S = 1.0
LINE = b"GET / HTTP/1.1\r\n"
HEADS = {
    "blanks in a value": LINE + b"X:" + b" \t" * (LENGTH // 2),
    "blanks in a value, then a control byte": LINE + b"X:" + b" " * LENGTH + b"\x01\r\n\r\n",
    "blanks round every byte": LINE + b"X:" + b" a" * (LENGTH // 2) + b"\x00\r\n\r\n",
    "a blank line that never ends": LINE + b" " * LENGTH,
    "colons": LINE + b":" * LENGTH + b"\r\n\r\n",
    "names and colons": LINE + b"a:" * (LENGTH // 2) + b"\r\n\r\n",
    "many headers": LINE + b"a:\r\n" * (LENGTH // 4) + b"\r\n",
    "many headers, the last one bad": LINE + b"a:\r\n" * (LENGTH // 4) + b"a\r\n\r\n",
    "many headers without an end": LINE + b"a:\r\n" * (LENGTH // 4),
    "many hosts": LINE + b"Host:\r\n" * (LENGTH // 7) + b"\r\n",
    "a name without a colon": LINE + b"a" * LENGTH,
    "a method without an end": b"G" * LENGTH,
    "a target without an end": b"GET " + b"/" * LENGTH,
    "a target, then a bad version": b"GET " + b"/" * LENGTH + b" HTTP/3\r\n\r\n",
    "empty lines": b"\r\n" * (LENGTH // 2),
    "line feeds": LINE + b"\n" * LENGTH,
    "carriage returns": LINE + b"X:" + b"\r" * LENGTH,
    "folded lines": LINE + b"X: a\r\n " * (LENGTH // 7) + b"\r\n\r\n",
    "a length": LINE + b"Content-Length: " + b"9" * LENGTH + b"\r\n\r\n",
    "many lengths": LINE + b"Content-Length:5\r\n" * (LENGTH // 18) + b"\r\n",
    "many codings": LINE + b"Transfer-Encoding:chunked\r\n" * (LENGTH // 27) + b"\r\n",
}
TEXTS = ["a", "a.", ".", "1.", "1", "0x", ":", "[", "]", "[:", "::", "a:", "*.", "**.", "*", "-", "_-",
         "/", ",", " ", "%2e", "\u00fc", "\u00fc.", "\u0661", "\u3002", "a\u0301", "\u200d"]  # fmt: skip


def no_suffix(_: str) -> Suffix:
    return Suffix.NONE


def cpu_seconds(read: Callable[[], object], *refusals: type[Exception]) -> float:
    started = time.process_time()
    with contextlib.suppress(*refusals):
        read()
    return time.process_time() - started


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_a_hostile_head_is_read_in_linear_time(head: bytes) -> None:
    def read() -> None:
        parsed = parse_head(head)
        parsed.tokens(b"connection")
        body_framing(parsed)

    assert cpu_seconds(read, RequestError) < BOUND_S


@pytest.mark.parametrize("piece", TEXTS)
def test_a_hostile_target_is_refused_in_linear_time(piece: str) -> None:
    whole = piece * LENGTH
    for text in (whole, f"{whole}:443", f"[{whole}]:443", f"ok.example:{whole}"):
        assert cpu_seconds(functools.partial(parse_authority, text), HostError) < BOUND_S


@pytest.mark.parametrize("piece", TEXTS)
def test_a_hostile_entry_is_refused_in_linear_time(piece: str) -> None:
    whole = piece * LENGTH
    for text in (whole, f"*.{whole}:443", f"ok.example:{whole}"):
        assert cpu_seconds(functools.partial(parse_rule, text, no_suffix), RuleError) < BOUND_S


@pytest.mark.parametrize(
    "piece", [b"/", b"/.", b"/..", b"%2e", b"%", b"%2", b"\\", b";", b"?", b"/a", b"://", b"#"]
)
def test_a_hostile_path_is_read_in_linear_time(piece: bytes) -> None:
    whole = piece * (LENGTH // len(piece))
    assert cpu_seconds(functools.partial(path_has_dot_segments, b"/" + whole)) < BOUND_S
    for target in (whole, b"/" + whole, b"http:/" + whole, b"http://" + whole):
        assert cpu_seconds(functools.partial(split_absolute, target), RequestError) < BOUND_S


@pytest.mark.parametrize(
    "data", [b"A", b"A ", b"GET /", b"GET / ", b"GET / HTTP/1.1\r", b"\r", b" ", b"\n", b"/"]
)
def test_hostile_first_bytes_are_judged_in_linear_time(data: bytes) -> None:
    for text in (data * LENGTH, data + b"/" * LENGTH, data + b"A" * LENGTH + b"\n"):
        assert cpu_seconds(functools.partial(judge_opening, text)) < BOUND_S
