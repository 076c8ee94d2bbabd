"""`sandbox profile|linux-wrap|describe`: what is on stdout, and every mistake as one line with exit 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.sandbox_verb import sandbox
from egress_proxy.sandbox.spec import Dimension

PROGRAM = "egress-proxy sandbox"
ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/home/one"}


def said(capsys: pytest.CaptureFixture[str], *words: str, bare_module: str | None = None) -> tuple[str, str]:
    assert sandbox(words, ENVIRON, program=PROGRAM, bare_module=bare_module) == ExitCode.OK
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_the_nearest_command_to_an_unknown_one_is_named() -> None:
    with pytest.raises(VerbFailed, match=r"^unknown command 'profle', did you mean profile") as failed:
        sandbox(("profle",), ENVIRON, program=PROGRAM)
    assert failed.value.code == ExitCode.USAGE


def test_help_names_the_three(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "--help")
    assert err == ""
    assert {"profile", "linux-wrap", "describe"} <= set(out.split())


def test_a_profile_is_all_there_is_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "profile", "--proxy-port", "8899")
    assert out.startswith("(version 1)\n(deny default)\n")
    assert 'remote tcp "localhost:8899"' in out
    assert "/home/one/.ssh" in out
    assert err.startswith("masked: ")
    assert "/home/one/.ssh" not in said(capsys, "profile", "--no-mask")[0]


def test_a_wrap_is_one_line_of_json_whose_shape_is_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "linux-wrap", "--no-network", "--backend", "bwrap", "--", "make", "--", "-x")
    assert out.count("\n") == 1
    assert err == "" or (err.startswith("masked: ") and err.count("\n") == 1)
    wrapped = json.loads(out)
    assert list(wrapped) == ["argv", "backend", "enforcement", "gaps"]
    assert wrapped["argv"][0].startswith("/")
    assert "-I" in wrapped["argv"]
    assert wrapped["argv"][-4:] == ["--", "make", "--", "-x"]
    assert (wrapped["backend"], wrapped["enforcement"], wrapped["gaps"]) == ("bwrap", "full", [])


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
def test_a_description_has_the_same_shape_without_the_command_line(
    capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    out, err = said(capsys, "describe", "--backend", backend)
    described = json.loads(out)
    assert list(described) == ["backend", "enforcement", "gaps"]
    assert (described["backend"], described["enforcement"]) == (backend, "partial")  # the network is open
    assert {tuple(gap) for gap in described["gaps"]} == {("dimension", "value", "reason")}
    assert "egress" in {gap["dimension"] for gap in described["gaps"]}
    assert err == ""


def test_where_nothing_can_confine_describe_says_so_and_linux_wrap_refuses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    environ = {"PATH": str(tmp_path)}
    words = ("--no-network", "--backend", "bwrap")
    assert sandbox(("describe", *words), environ, program=PROGRAM) == ExitCode.OK
    captured = capsys.readouterr()
    described = json.loads(captured.out)
    assert (described["backend"], described["enforcement"]) == ("none", "none")
    assert [gap["dimension"] for gap in described["gaps"]] == [str(one) for one in Dimension]
    assert "bwrap" in captured.err
    assert captured.err.count("\n") == 1
    with pytest.raises(VerbFailed, match="bwrap") as failed:
        sandbox(("linux-wrap", *words, "--", "true"), environ, program=PROGRAM)
    assert failed.value.code == ExitCode.USAGE
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("nonsense",),
        ("profile", "x"),
        ("profile", "--", "true"),
        ("profile", "--proxy-port", "0"),
        ("profile", "--proxy-port", "x"),
        ("profile", "--allow-host", "https://a.test"),
        ("profile", "--allow-host", ""),
        ("profile", "--allow-host", "*.co.uk"),
        ("profile", "--allow-host", "**.co.uk"),
        ("profile", "--allow-host", "localhost:1", "--allow-host", "*.github.io:443"),
        ("profile", "--allow-host", "a.test", "--proxy-port", "1"),
        ("profile", "--writable-root", "/nowhere"),
        ("linux-wrap",),
        ("linux-wrap", "--"),
        ("linux-wrap", "true"),
        ("linux-wrap", "--allow-host", "a.test", "--", "true"),
        ("linux-wrap", "--proxy", "/nowhere", "--", "true"),
        ("linux-wrap", "--proxy", "", "--", "true"),
        ("linux-wrap", "--writable-root", "/", "--", "true"),
        ("linux-wrap", "--backend", "other", "--", "true"),
        ("describe", "--", "true"),
        ("describe", "--allow-host", "*"),
        ("describe", "--no-network", "--proxy", "/x"),
    ],
)
def test_a_mistake_prints_nothing_and_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    with pytest.raises(VerbFailed) as failed:
        sandbox(words, ENVIRON, program=PROGRAM)
    assert failed.value.code == ExitCode.USAGE
    assert "\n" not in str(failed.value)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("bare_module", "root", "is_warned"),
    [("m", ".", True), ("m", "..", True), ("m", "inside", False), (None, ".", False)],
)
def test_the_bare_module_warns_when_it_was_looked_for_in_a_root(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bare_module: str | None,
    root: str,
    is_warned: bool,
) -> None:
    work = tmp_path / "around" / "work"
    (work / "inside").mkdir(parents=True)
    monkeypatch.chdir(work)
    out, err = said(capsys, "profile", "--writable-root", root, bare_module=bare_module)
    assert out.startswith("(version 1)")
    masked, _, warned = err.partition("\n")
    assert masked.startswith("masked: ")
    assert warned.startswith("warning: python -m looks for modules") if is_warned else warned == ""
