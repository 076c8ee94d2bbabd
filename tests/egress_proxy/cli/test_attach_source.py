"""Where sandboxes attach: what was named must be usable, and the default may be missing with a warning."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from egress_proxy.cli.attach_source import AttachPlace, attach_of
from egress_proxy.cli.plan import AttachPlan
from egress_proxy.settings.load import load
from egress_proxy.settings.origins import SettingsError, Text

HOME = {"HOME": "/home/me"}


def place(named: str | None, environ: dict[str, str]) -> AttachPlace:
    flags = {} if named is None else {"attach": Text(named)}
    return attach_of(load(flags, environ), environ)


@pytest.mark.parametrize("environ", [HOME, {}])
def test_what_is_named_is_absolute_and_must_be_had(environ: dict[str, str]) -> None:
    assert place("a.sock", environ) == AttachPlace(AttachPlan(Path.cwd() / "a.sock", is_named=True))
    assert place("/run/a.sock", environ) == AttachPlace(AttachPlan(Path("/run/a.sock"), is_named=True))


def test_a_variable_names_one_too() -> None:
    assert place(None, {"EGRESS_ATTACH": "/run/a.sock"}).plan == AttachPlan(
        Path("/run/a.sock"), is_named=True
    )


@pytest.mark.parametrize("environ", [HOME, {}])
def test_an_empty_one_is_none_without_a_word(environ: dict[str, str]) -> None:
    assert place("", environ) == AttachPlace(None)


def test_the_default_lies_in_the_users_own_folders() -> None:
    path = Path("/home/me/.local/state/egress-proxy/attach.sock")
    assert place(None, HOME) == AttachPlace(AttachPlan(path, is_named=False))


def test_without_a_place_for_it_there_is_none_and_a_warning() -> None:
    found = place(None, {})
    assert found.plan is None
    assert len(found.warnings) == 1
    assert "names a folder" in found.warnings[0]
    assert "--attach PATH" in found.warnings[0]


def test_a_folder_that_is_too_long_for_a_socket_is_passed_over_for_a_shorter_one() -> None:
    long = "/" + "r" * 90
    state = Path("/home/me/.local/state/egress-proxy/attach.sock")
    assert place(None, {"XDG_RUNTIME_DIR": long, **HOME}) == AttachPlace(AttachPlan(state, is_named=False))
    short = Path(f"/tmp/egress-proxy-{os.geteuid()}/attach.sock")
    everywhere = {"XDG_RUNTIME_DIR": long, "XDG_STATE_HOME": long, "HOME": long}
    assert place(None, everywhere) == AttachPlace(AttachPlan(short, is_named=False))


def test_a_named_path_that_is_too_long_once_it_is_absolute_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.chdir(deep)
    with pytest.raises(SettingsError, match=r"--attach is longer than the \d+ bytes"):
        place("attach.sock", {})
