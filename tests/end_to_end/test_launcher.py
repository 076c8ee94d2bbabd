"""The console scripts start the interpreter beside them, isolated, without the loader's variables."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support import ordinary_user
from tests.support.installed import SCRIPTS, installed
from tests.support.program import REPOSITORY

LOADER = ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "DYLD_INSERT_LIBRARIES")
HOSTILE = ("sitecustomize", "usercustomize", "re", "os", "ssl", "io", "encodings", "runpy", "egress_proxy")
USERS = ("present", "ordinary") if ordinary_user.may_be_played() else ("present",)


@pytest.fixture(scope="module", params=USERS)
def scripts(request: pytest.FixtureRequest) -> Iterator[Path]:
    with TemporaryDirectory(prefix="eg-") as folder:
        Path(folder).chmod(0o711)
        is_ordinary = request.param == "ordinary"
        yield installed(Path(folder, "venv"), ordinary_user.interpreter() if is_ordinary else sys.executable)


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder of modules each of which says that it ran, also as a user's own site folder."""
    for folder in (tmp_path, *(tmp_path / f"lib/python3.{n}/site-packages" for n in range(11, 16))):
        folder.mkdir(parents=True, exist_ok=True)
        for name in HOSTILE:
            (folder / f"{name}.py").write_text("import sys; sys.stderr.write('it ran\\n'); sys.exit(99)\n")
    return tmp_path


def started(
    script: Path | str, *words: str, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **(env or {})}
    return subprocess.run(
        (script, *words), cwd=cwd, env=environment, capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"PYTHONPATH": "."},
        {"PYTHONPATH": ":/opt/src"},
        {"PYTHONPATH": "{planted}"},
        {"PYTHONUSERBASE": "{planted}"},
        {"PYTHONSTARTUP": "re.py", "PYTHONINSPECT": "1"},
        {"PYTHONHOME": "{planted}"},
        {"PYTHONBREAKPOINT": "re.x", "PYTHONWARNINGS": "error::re.X", "PYTHONPLATLIBDIR": "x"},
    ],
    ids=lambda env: " ".join(f"{name}={value}" for name, value in env.items()) or "folder",
)
def test_nothing_is_imported_from_where_python_variables_lead(
    scripts: Path, planted: Path, env: Mapping[str, str]
) -> None:
    led = {name: value.format(planted=planted) for name, value in env.items()}
    done = started(scripts / "egress-proxy", "--version", cwd=planted, env=led)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("steerable-egress ")


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """Scripts beside a `python3` that shows how it was started."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in SCRIPTS:
        shutil.copy(REPOSITORY / "bin" / name, folder)
    python = folder / "python3"
    python.write_text('#!/bin/sh\nenv\nprintf "argument %s\\n" "$@"\n')
    python.chmod(0o755)
    return folder


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("value", ["", ":/opt/lib", "/nowhere/x.so"])
def test_the_loaders_variables_go_and_their_values_are_handed_on(
    shown: Path, tmp_path: Path, script: str, value: str
) -> None:
    done = started(shown / script, "a b", cwd=tmp_path, env=dict.fromkeys(LOADER, value) | {"LD_DEBUG": ""})
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert not {name for name in names if name.startswith(("LD_", "DYLD_", "GCONV"))}
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"):
        assert f"EGRESS_STARTED_{name}={value}\n" in done.stdout
    assert done.stdout.splitlines().index("argument -I") < done.stdout.splitlines().index("argument a b")


@pytest.mark.parametrize("name", ["OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES"])
def test_settings_of_openssl_are_not_looked_for_in_the_working_folder(
    shown: Path, tmp_path: Path, name: str
) -> None:
    for value, stays in (("openssl.cnf", False), ("", False), ("/etc/ssl/openssl.cnf", True)):
        done = started(shown / "egress-proxy", cwd=tmp_path, env={name: value})
        assert (f"{name}=" in done.stdout) is stays


def test_what_was_not_set_is_not_handed_on(shown: Path, tmp_path: Path) -> None:
    env = {"EGRESS_STARTED_LD_PRELOAD": "/forged.so", "OTHER": "1"}
    done = started(shown / "egress-proxy", cwd=tmp_path, env=env)
    assert "EGRESS_STARTED" not in done.stdout
    assert "OTHER=1" in done.stdout


def test_it_is_found_through_links_by_name_and_by_relative_paths(scripts: Path, tmp_path: Path) -> None:
    linked = tmp_path / "bin"
    linked.mkdir()
    (linked / "egress-proxy").symlink_to(scripts / "egress-proxy")
    (linked / "again").symlink_to("egress-proxy")
    ways: tuple[tuple[str, ...], ...] = (
        (str(linked / "again"),),
        ("bin/egress-proxy",),
        ("/usr/bin/env", "egress-proxy"),
        ("sh", "bin/egress-proxy"),
    )
    for way in ways:
        done = started(*way, "--version", cwd=tmp_path, env={"PATH": "bin:/usr/bin:/bin"})
        assert (done.returncode, done.stderr) == (0, ""), way
    done = started("sh", "egress-proxy", "--version", cwd=scripts)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_product_it_says_where_to_install_it(tmp_path: Path) -> None:
    scripts = installed(tmp_path / "venv")
    for pth in tmp_path.glob("venv/lib/*/site-packages/product.pth"):
        pth.unlink()
    done = started(scripts / "egress-proxy", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: No module named 'egress_proxy'")
    assert "python3 -m venv" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_both_are_the_same_but_for_what_they_call() -> None:
    one, other = ((REPOSITORY / "bin" / name).read_text() for name in SCRIPTS)
    for of_one, of_other in (
        ("main import main\n", "main import main_drop_in\n"),
        ("sys.exit(main())", "sys.exit(main_drop_in())"),
        ("`egress-proxy VERB ...`", "`steerable-egress-proxy ...`"),
        ("[ \"${1-}\" != serve ] || trap '' HUP", "trap '' HUP"),  # the other one has no verb but this
        ('is_service=sys.argv[1:2] == ["serve"]', "is_service=True"),
    ):
        assert one.count(of_one) == 1
        one = one.replace(of_one, of_other)
    assert other == one


def test_they_are_what_is_installed() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    scripts = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-scripts"]
    assert scripts == {f"bin/{name}": name for name in SCRIPTS}
    assert "scripts" not in project["project"]
    for name in SCRIPTS:
        assert os.access(REPOSITORY / "bin" / name, os.X_OK)
        assert Path(sys.executable).with_name(name).read_bytes() == (REPOSITORY / "bin" / name).read_bytes()
