"""Roots that this program's own code comes from: refused by the variable or the file that leads there."""

import os
import sys
from pathlib import Path

import pytest

from egress_proxy.sandbox.roots import RootRefused, canonical_roots
from egress_proxy.sandbox.started_from import started_from


@pytest.mark.parametrize("variable", ["PYTHONPATH", "LD_LIBRARY_PATH"])
@pytest.mark.parametrize(
    "value", ["{}/src", "/opt/x:{}/src/", "{}", ":/opt/lib", "/opt/lib:", "src", "{}/src:"]
)
def test_a_root_that_code_comes_from_is_refused_and_the_variable_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    (tmp_path / "src/deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    guards = tuple(started_from({variable: value.format(tmp_path)}))
    for root in (tmp_path, tmp_path / "src", tmp_path / "src/deep"):
        if root != tmp_path and value in (":/opt/lib", "/opt/lib:", "{}", "{}/src:"):
            continue
        with pytest.raises(RootRefused, match=variable):
            canonical_roots([str(root)], started_from=guards)
    assert canonical_roots([str(tmp_path)], started_from=guards, forced=True)


def test_a_folder_that_a_pth_file_adds_is_refused_and_the_file_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    (tmp_path / "project").mkdir()
    packages.mkdir()
    (packages / "linked.pth").write_text(f"# x\nimport os\n{tmp_path}/project\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    guards = tuple(started_from({}))
    with pytest.raises(RootRefused, match=r"linked\.pth"):
        canonical_roots([f"{tmp_path}/project"], started_from=guards)
    with pytest.raises(RootRefused, match="Python loads code"):
        canonical_roots([str(packages)], started_from=guards)


def test_nothing_is_guarded_for_variables_that_are_not_set(tmp_path: Path) -> None:
    assert canonical_roots([str(tmp_path)], started_from=tuple(started_from(dict.fromkeys(os.environ, "x"))))
