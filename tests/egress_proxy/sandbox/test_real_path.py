"""Where a path leads, while it is swapped between a folder and a link by somebody who does not stop."""

import os
import threading
import time
from pathlib import Path

from egress_proxy.sandbox.real_path import real_path


def test_a_path_at_rest_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    assert real_path(f"{tmp_path}/link/x/..") == str(tmp_path.resolve() / "folder")
    assert real_path(f"{tmp_path}/absent") == str(tmp_path.resolve() / "absent")


def test_a_path_that_is_swapped_all_the_time_never_raises(tmp_path: Path) -> None:
    spot, folder, link = (str(tmp_path / name) for name in ("spot", "folder", "link"))
    os.mkdir(folder)
    os.symlink("elsewhere", link)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for other in (folder, link):
                os.rename(other, spot)
                os.rename(spot, other)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        end = time.monotonic() + 0.5
        seen = set()
        while time.monotonic() < end:
            seen.add(real_path(f"{spot}/x"))
    finally:
        is_over.set()
        swapper.join()
    assert seen <= {str(tmp_path.resolve() / name / "x") for name in ("spot", "elsewhere")}
