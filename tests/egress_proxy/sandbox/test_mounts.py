"""Second places of a path, from a table of mounts; and that this machine's own table can be read."""

import pytest

from egress_proxy.sandbox.mounts import MountPoint, other_places, read_mounts, slow_mounts

ROOT = MountPoint("8:1", "/", "/", "ext4")


@pytest.mark.parametrize(
    ("mounts", "places"),
    [
        ((ROOT,), []),
        ((ROOT, MountPoint("8:1", "/home", "/mnt/homes", "ext4")), ["/mnt/homes/u/.ssh"]),
        ((ROOT, MountPoint("8:1", "/home/u/.ssh", "/mnt/keys", "ext4")), ["/mnt/keys"]),
        ((ROOT, MountPoint("8:1", "/home/u/.ssh/inner", "/mnt/part", "ext4")), ["/mnt/part"]),
        ((ROOT, MountPoint("8:1", "/", "/mnt/all", "ext4")), ["/mnt/all/home/u/.ssh"]),
        ((ROOT, MountPoint("8:1", "/home/other", "/mnt/other", "ext4")), []),
        (
            (ROOT, MountPoint("8:2", "/", "/home", "ext4"), MountPoint("8:2", "/u", "/mnt/u", "ext4")),
            ["/mnt/u/.ssh"],
        ),
        ((ROOT, MountPoint("8:1", "/home", "/mnt/h", "ext4"), MountPoint("0:9", "/", "/mnt/h", "tmpfs")), []),
    ],
)
def test_every_second_place_is_named(mounts: tuple[MountPoint, ...], places: list[str]) -> None:
    assert list(other_places(["/home/u/.ssh"], mounts)) == places


def test_this_machines_mounts_have_a_root_folder() -> None:
    assert "/" in {mount.point for mount in read_mounts()}


def test_what_may_take_long_is_not_entered() -> None:
    kinds = ("autofs", "fuse.sshfs", "nfs4", "cifs", "ext4", "overlay")
    mounts = [MountPoint("1:1", "/", f"/{kind}", kind) for kind in kinds]
    assert slow_mounts(mounts) == {"/autofs", "/fuse.sshfs", "/nfs4", "/cifs"}
