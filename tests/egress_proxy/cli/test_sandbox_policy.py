"""From flags to one policy: roots judged, hosts parsed, contradictions refused, the proxy asked."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.sandbox_arguments import describe_parser
from egress_proxy.cli.sandbox_policy import (
    attach_path,
    home_of,
    masked_line,
    may_be_root,
    roots_of,
    spec_of,
    tell_of_roots,
    working_folder,
)
from egress_proxy.core.attach import OwnFiles, Welcome, encode_answer
from egress_proxy.sandbox.roots import homes
from egress_proxy.sandbox.spec import (
    NoNetwork,
    OpenNetwork,
    PortsOnly,
    SandboxSpec,
    SandboxUnavailable,
    ThroughProxy,
)
from tests.support.attach_peer import WELCOME, attach_peer
from tests.support.confined import run_confined, shell


def spec(*flags: str, **environ: str) -> SandboxSpec:
    return spec_of(describe_parser("x").parse(flags), {"HOME": "/home/one", **environ})


def test_without_flags_nothing_is_written_and_the_network_is_open() -> None:
    assert replace(spec(), protected=()) == SandboxSpec((), OpenNetwork(), homes=homes("/home/one"))
    assert "/home/one" in spec().homes
    assert os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir) in spec().homes


def test_flags_become_what_they_say(tmp_path: Path) -> None:
    given = spec("--writable-root", str(tmp_path), "--no-network", "--no-mask", "--mask", "secret")
    assert given.roots == (str(tmp_path.resolve()),)
    assert given.egress == NoNetwork()
    assert (given.mask_secrets, given.masks) == (False, (os.path.abspath("secret"),))
    one = spec("--no-mask", "a", "--no-mask", "/b", "--no-network")
    assert (one.mask_secrets, one.unmasked) == (True, (os.path.abspath("a"), "/b"))
    assert spec("--allow-host", "a.test:81").egress == PortsOnly(frozenset({81}))


def test_the_proxy_is_asked_for_its_port(tmp_path: Path) -> None:
    with attach_peer(tmp_path, WELCOME) as path:
        assert spec("--proxy", path).egress == ThroughProxy(path, 8899, None)
        assert spec("--allow-host", "localhost:8899", EGRESS_ATTACH=path).egress == ThroughProxy(
            path, 8899, None
        )
    with pytest.raises(SandboxUnavailable, match="no proxy answers"):
        spec("--proxy", path)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--no-network", "--proxy", "/x"], "--no-network and --proxy exclude"),
        (["--no-network", "--allow-host", "a.test"], "--no-network and --allow-host exclude"),
        (["--proxy", "/x", "--allow-host", "a.test"], "--proxy and --allow-host exclude"),
        (["--proxy", ""], "--proxy has an empty value"),
        (["--allow-host", "https://a.test"], r"https://a\.test.*\(--allow-host\)"),
        (["--allow-host", "a.test,b.test"], "a.test,b.test"),
        (["--writable-root", "/nowhere"], "/nowhere"),
    ],
)
def test_contradictions_and_bad_words_are_usage_errors(flags: list[str], words: str) -> None:
    with pytest.raises(VerbFailed, match=words) as failed:
        spec(*flags)
    assert failed.value.code == ExitCode.USAGE


def test_both_kinds_of_roots_are_one_list_without_roots_in_roots(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    assert roots_of([str(inner)], [str(tmp_path)], {}) == (str(tmp_path.resolve()),)
    assert roots_of([], ["/etc"], {}) == ("/etc",)


def test_the_refusal_names_the_flag_that_the_verb_has() -> None:
    with pytest.raises(VerbFailed, match="--dangerously-writable-root lifts this"):
        roots_of(["/etc"], [], {})
    with pytest.raises(VerbFailed, match="; --dangerously-rw lifts this"):
        roots_of(["/etc"], [], {}, "--dangerously-rw")


def test_the_folder_of_the_attach_socket_is_no_root(tmp_path: Path) -> None:
    with pytest.raises(VerbFailed, match="the proxy's own folder"):
        roots_of([str(tmp_path)], [], {"EGRESS_ATTACH": str(tmp_path / "attach.sock")})


def test_a_home_that_is_no_path_is_none() -> None:
    assert home_of({"HOME": "/home/one"}) == "/home/one"
    assert home_of({}) is home_of({"HOME": "here"}) is home_of({"HOME": ""}) is None


def test_the_attach_socket_is_the_named_one_else_the_usual() -> None:
    environ = {"XDG_RUNTIME_DIR": "/run/user/1"}
    assert attach_path({**environ, "EGRESS_ATTACH": "/x"}) == "/x"
    assert attach_path(environ) == "/run/user/1/egress-proxy/attach.sock"


def test_a_working_folder_that_is_gone_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(VerbFailed, match="the working folder cannot be used"):
        working_folder()


def test_a_yes_that_the_command_writes_itself_is_nobodys(tmp_path: Path) -> None:
    folder = tmp_path / ".steerable"
    folder.mkdir()
    (folder / "approvals.json").write_text("{}")
    given = spec("--writable-root", str(folder), "--no-network", HOME=str(tmp_path))
    script = f"echo x > {folder}/cache; echo yes > {folder}/approvals.json"
    end = run_confined(given, shell(script), backend="bwrap")
    assert (folder / "approvals.json").read_text() == "{}"
    assert (folder / "cache").read_text() == "x\n"
    assert end.finished.outcome.denied_writes == (str(folder / "approvals.json"),)


def test_what_is_masked_is_said_in_one_short_line() -> None:
    paths = [f"/home/u/{name}" for name in ("a b", ".ssh", "c", "d", "e", "f", "g")]
    assert masked_line(paths[:2], ["/home/u"]) == "masked: ~/'a b', ~/.ssh (--no-mask PATH lets one be read)"
    assert " and 2 more" in masked_line(paths, ["/home/v"])


def test_a_proxy_that_knows_the_question_names_its_own_files(tmp_path: Path) -> None:
    own = OwnFiles((f"{tmp_path}/key",), (f"{tmp_path}/egress.toml",))
    with attach_peer(tmp_path, encode_answer(Welcome("sandbox-1", 8899, own))) as path:
        assert spec("--proxy", path).egress == ThroughProxy(path, 8899, own)


def test_a_root_that_a_link_leads_to_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    tell_of_roots([f"{tmp_path}/link"], None)
    assert capsys.readouterr().err == f"writable root {tmp_path}/link is {tmp_path}/real\n"


@pytest.mark.parametrize("name", [".ssh", ".claude", ".config/egress", ".local/bin", ".config"])
def test_what_is_refused_as_a_root_is_not_proposed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / "work").mkdir()
    environ = {"HOME": str(tmp_path)}
    assert not may_be_root(f"{tmp_path}/{name}", environ)
    assert may_be_root(f"{tmp_path}/work", environ)
