"""`python -m egress_proxy` says when the working folder may have given it modules, whatever the verb."""

from pathlib import Path

import pytest

from tests.egress_proxy.cli.command import MODULE, ROOT, run

VERBS = (
    ("check", "a.example", "--allow", "a.example"),
    ("env", "--no-marker"),
    ("classify", "true"),
    ("config", "check", "--allow-none"),
    ("sandbox", "profile", "--no-network"),
    ("--version",),
)


# Modules that no verb imports: one that has taken another's place would have run already.
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_every_verb_warns_where_the_working_folder_shadows_a_module(
    tmp_path: Path, verb: tuple[str, ...]
) -> None:
    (tmp_path / "this.py").touch()
    ended = run(*verb, entry=MODULE, cwd=tmp_path)
    assert ended.code in (0, 2)
    assert ended.err.count("warning: python -m looks for modules in the working folder first") == 1
    assert "that holds this.py: use `egress-proxy`" in ended.err


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("antigravity.py", True),
        ("this/__init__.py", True),
        ("this.cpython-311-x86_64-linux-gnu.so", True),
        ("pytest_timeout.py", True),
        ("pytest/__init__.py", True),
        ("this/notes.py", False),
        ("this.txt", False),
        ("agent.py", False),
    ],
)
def test_what_an_import_would_take_is_a_shadow(tmp_path: Path, name: str, is_one: bool) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    ended = run("--version", entry=MODULE, cwd=tmp_path)
    assert ("warning: " in ended.err) is is_one


def test_a_checkout_of_the_product_shadows_nothing() -> None:
    assert run("--version", entry=MODULE, cwd=ROOT).err == ""


def test_run_warns_of_a_root_that_is_searched(tmp_path: Path) -> None:
    for root, is_warned in ((".", True), ("..", True), ("below", False)):
        (tmp_path / "here" / "below").mkdir(parents=True, exist_ok=True)
        ended = run("run", "--rw", root, "--", "true", entry=MODULE, cwd=tmp_path / "here")
        assert ("that is writable in the sandbox" in ended.err) is is_warned, root


@pytest.mark.parametrize(
    "wrong", [("--rw", "/"), ("--rw", ".", "--env", "1=2"), ("--rw", ".", "--ro", "/nowhere")]
)
def test_before_an_error_there_is_no_other_line(tmp_path: Path, wrong: tuple[str, ...]) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    ended = run(
        "run", "--rw", str(tmp_path / "link"), *wrong, "--", "true", entry=MODULE, cwd=tmp_path / "here"
    )
    assert ended.code == 2
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
