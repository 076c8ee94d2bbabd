"""A folder of our own is made where a socket's path fits, and no root may hold the places where it may be."""

import os
import socket
import tempfile
from pathlib import Path

import pytest

from egress_proxy.sandbox import short_folder as places
from egress_proxy.sandbox.roots import RootRefused, canonical_roots
from egress_proxy.sandbox.short_folder import short_folder, temporary_places


@pytest.mark.parametrize("named", ["/" + "d" * 90, "/nowhere", "relative", ""])
def test_whatever_tmpdir_says_a_socket_can_be_made_in_it(named: str) -> None:
    with short_folder("egress-x-", {"TMPDIR": named}) as folder, socket.socket(socket.AF_UNIX) as sock:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder == folder.resolve()
        sock.bind(str(folder / "attach.sock"))
    assert not folder.exists()


def test_a_place_that_takes_nothing_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_SHARED", "/proc/nowhere")
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        with short_folder("egress-x-", {"XDG_RUNTIME_DIR": short}) as folder:
            assert folder.parent == Path(short)
        with short_folder("egress-x-", {"XDG_RUNTIME_DIR": "/" + "d" * 90, "TMPDIR": short}) as folder:
            assert folder.parent == Path(short)
    with pytest.raises(OSError, match="neither /tmp nor"), short_folder("egress-x-", {}):
        pass


def test_a_root_that_holds_the_temporary_files_of_this_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        inside = Path(short, "tmp")
        inside.mkdir()
        assert canonical_roots([short]) == (short,)
        monkeypatch.setenv("TMPDIR", str(inside))
        for root in ("/tmp", short, str(inside)):
            with pytest.raises(RootRefused, match="the folder for temporary files") as refused:
                canonical_roots([root])
            assert repr(root) in str(refused.value)
            assert canonical_roots([root], forced=True) == (os.path.realpath(root),)
        below = inside / "work"
        below.mkdir()
        assert canonical_roots([str(below)]) == (str(below),)
        # As it is too long for a socket nothing of ours is ever in it.
        monkeypatch.setenv("TMPDIR", str(tmp_path / ("d" * 90)))
        (tmp_path / ("d" * 90)).mkdir()
        assert canonical_roots([str(tmp_path)]) == (str(tmp_path),)
        assert temporary_places({"TMPDIR": "relative"}) == ("/tmp",)
