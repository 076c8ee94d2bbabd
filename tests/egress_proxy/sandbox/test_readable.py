"""Reading all but some paths: the list that is left has everything else, and nothing masked."""

import os
import random
from pathlib import Path

import pytest

from egress_proxy.sandbox.readable import Kind, Readable, masks_inside, readable_except

EVERYTHING = [Readable(Kind.TREE, "/")]


def contents(readable: list[Readable]) -> set[str]:
    return {entry.path for entry in readable if entry.kind is not Kind.NAMES}


def is_covered(path: Path, readable: list[Readable]) -> bool:
    return not contents(readable).isdisjoint({str(path), *map(str, path.parents)})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("home/.ssh/key", "home/.ssh/deep/key", "home/work/source", "home/notes", "other/file"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "home"


def test_without_masks_it_is_everything() -> None:
    assert readable_except([], []) == EVERYTHING


def test_a_masked_folder_is_left_out_with_all_that_is_in_it(home: Path) -> None:
    readable = readable_except([str(home / ".ssh")], [])
    assert not is_covered(home / ".ssh/key", readable)
    assert not is_covered(home / ".ssh/deep/key", readable)
    for path in ("work/source", "notes", "../other/file"):
        assert is_covered((home / path).resolve(), readable)


def test_a_masked_file_leaves_its_neighbours(home: Path) -> None:
    readable = readable_except([str(home / ".ssh/key")], [])
    assert not is_covered(home / ".ssh/key", readable)
    assert is_covered(home / ".ssh/deep/key", readable)


def test_names_stay_visible_everywhere(home: Path) -> None:
    assert Readable(Kind.NAMES, "/") in readable_except([str(home)], [])


def test_files_and_folders_are_told_apart(home: Path) -> None:
    readable = readable_except([str(home / ".ssh")], [])
    assert Readable(Kind.FILE, str(home / "notes")) in readable
    assert Readable(Kind.TREE, str(home / "work")) in readable


def test_a_link_to_what_is_masked_opens_nothing(home: Path) -> None:
    (home / "link").symlink_to(".ssh")
    assert not is_covered(home / "link", readable_except([str(home / ".ssh")], []))


def test_a_mask_that_is_a_link_masks_what_it_leads_to(home: Path) -> None:
    (home / "link").symlink_to(home.parent / "other")
    readable = readable_except([str(home / "link")], [])
    assert not is_covered(home.parent / "other/file", readable)
    assert is_covered(home / "notes", readable)


def test_a_mask_that_is_not_there_changes_nothing(home: Path) -> None:
    assert readable_except([str(home / ".aws")], []) == EVERYTHING


def test_a_mask_of_everything_leaves_names_and_nothing_more() -> None:
    assert contents(readable_except(["/"], [])) == set()


def test_a_mask_inside_a_root_cannot_be_held_and_is_named(home: Path) -> None:
    masks = [str(home / "work/source"), str(home / ".ssh"), str(home / "work")]
    assert masks_inside(masks, [str(home / "work")]) == (masks[0], masks[2])
    assert readable_except(masks[:1], [str(home / "work")]) == EVERYTHING


def test_a_root_below_a_mask_does_not_lift_it(home: Path) -> None:
    readable = readable_except([str(home)], [str(home / "work")])
    assert not is_covered(home / "notes", readable)


def test_any_choice_of_masks_splits_a_tree_in_two(tmp_path: Path) -> None:
    chance = random.Random(1)
    files = [tmp_path / f"{a}/{b}/{c}" for a in "ab" for b in "cd" for c in "ef"]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    places = sorted({*files, *(path.parent for path in files), *(path.parent.parent for path in files)})
    for _ in range(50):
        masked = set(chance.sample(places, chance.randint(1, 5)))
        readable = readable_except(map(str, masked), [])
        for path in files:
            assert is_covered(path, readable) == masked.isdisjoint({path, *path.parents})


def test_a_folder_that_cannot_be_listed_is_left_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.scandir

    def scandir(path: str) -> object:
        if path == str(home):
            raise PermissionError
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert not is_covered(home / "notes", readable_except([str(home / ".ssh")], []))
