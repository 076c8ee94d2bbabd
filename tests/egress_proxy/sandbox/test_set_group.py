"""Folders keep the set-group bit, programs that a command left with it do not, and they are told of."""

import socket
import stat
import time
from pathlib import Path

import pytest

from egress_proxy.sandbox import set_group
from egress_proxy.sandbox.set_group import take_set_group_off
from tests.support.confined import run_confined, shell, spec_for


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def program(path: Path, bits: int = 0o2755) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(bits)
    return path


def test_the_bit_is_taken_off_what_is_new_and_executable_for_its_group(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    old = program(root / "old")
    time.sleep(0.02)  # file times come from a coarse clock
    since = time.time_ns()
    time.sleep(0.02)
    (root / "a").chmod(0o2775)
    new, data = program(root / "a/b/new"), program(root / "a/lock", 0o2644)
    outside = program(tmp_path / "outside")
    (root / "link").symlink_to(outside)
    assert take_set_group_off([str(root)], since) == ((str(new),), True)
    assert (mode(new), mode(data), mode(root / "a"), mode(old)) == (0o755, 0o2644, 0o2775, 0o2755)
    assert mode(outside) == 0o2755


def test_too_many_entries_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_group, "ENTRIES_LIMIT", 3)
    for name in "abcde":
        (tmp_path / name).touch()
    assert take_set_group_off([str(tmp_path)], 0) == ((), False)


WORK = """
set -e; cd {root}; umask 022
mkdir -m 2775 shared; chmod g+s shared; mkdir shared/below; cp -a shared copy; cp -r shared other
tar cf all.tar shared; mkdir out; tar xpf all.tar -C out; chmod -R g+w shared
git init -q --shared=group g; cd g; git config user.email a@b.c; git config user.name n
echo x > f; git add -A; git commit -qm one; cd ..
cp /bin/true left; chmod 2755 left
cp /bin/true set; ! chmod 4755 set 2>/dev/null
"""


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
def test_work_in_folders_of_a_group_is_ordinary(backend: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o2775)
    root.chmod(0o2775)
    end = run_confined(spec_for(root), shell(WORK.format(root=root)), backend=backend)
    assert (end.code, end.finished.outcome.runner_failure) == (0, None), end
    for folder in ("shared", "copy", "out/shared", "shared/below"):
        assert (root / folder).stat().st_mode & stat.S_ISGID
    assert (mode(root / "left"), mode(root / "set") & stat.S_ISUID) == (0o755, 0)
    assert str(root / "left") in end.finished.outcome.planted.paths


def test_a_sockets_name_is_told_of(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "left"))
    assert take_set_group_off([str(tmp_path)], 0) == ((str(tmp_path / "left"),), True)
