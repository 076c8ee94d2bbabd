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


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PYTHONHOME", "/usr:{}/src"),
        ("PYTHONUSERBASE", "{}/src"),
        ("PYTHONPYCACHEPREFIX", "{}/src"),
        ("LD_PRELOAD", "libm.so.6 {}/src/x.so"),
        ("LD_AUDIT", "/opt/a.so:{}/src/x.so"),
        ("GCONV_PATH", "/opt:{}/src"),
        ("OPENSSL_CONF", "{}/src/x.so"),
        ("OPENSSL_CONF_INCLUDE", "{}/src"),
        ("OPENSSL_ENGINES", "src"),
        ("OPENSSL_MODULES", "{}/src"),
    ],
)
def test_whatever_has_a_library_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/x.so").touch()
    monkeypatch.chdir(tmp_path)
    guards = tuple(started_from({variable: value.format(tmp_path)}))
    for root in (tmp_path, tmp_path / "src"):
        with pytest.raises(RootRefused, match=rf"and {variable} has"):
            canonical_roots([str(root)], started_from=guards)


def test_a_link_on_the_way_to_code_lies_in_no_root(tmp_path: Path) -> None:
    (tmp_path / "elsewhere/lib").mkdir(parents=True)
    (tmp_path / "root/inside").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to(tmp_path / "elsewhere")
    guards = tuple(started_from({"LD_LIBRARY_PATH": f"{tmp_path}/root/link/lib"}))
    for root in ("root", "elsewhere", "elsewhere/lib"):
        with pytest.raises(RootRefused, match="LD_LIBRARY_PATH"):
            canonical_roots([f"{tmp_path}/{root}"], started_from=guards)
    assert canonical_roots([f"{tmp_path}/root/inside"], started_from=guards)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PYTHONPATH", ""), ("LD_LIBRARY_PATH", ""), ("LD_PRELOAD", "libm.so.6"), ("OPENSSL_CONF", "")],
)
def test_what_leads_nowhere_refuses_no_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert canonical_roots([str(tmp_path)], started_from=tuple(started_from({variable: value})))


def test_nothing_is_guarded_for_variables_that_are_not_set(tmp_path: Path) -> None:
    assert canonical_roots([str(tmp_path)], started_from=tuple(started_from(dict.fromkeys(os.environ, "x"))))
