"""Built-in rules: disks, file systems and devices. Data only.

Next: rule_parts.py (pieces of patterns), builtin_rules.py (all rules together).
"""

from egress_proxy.safety.pattern import View
from egress_proxy.safety.rule_parts import ANY, DISK, HARMLESS_DEVICES, O, W, none_of, rule

DISK_RULES = (
    rule(
        "mkfs",
        "Makes a new file system: what was on the device is lost",
        r"^(?:mkfs(?:\.[a-z0-9]+)?|mke2fs|mkdosfs|mkntfs|newfs(?:_[a-z]+)?|mkudffs|mkswap|mkreiserfs|mkisoswap)"
        + rf"{O} --{W} /dev/",
        "disk",
        "critical",
        rough=r"\bmk(?:fs(?:\.\w+)?|e2fs|swap)\s+(?:\S+\s+)*?/dev/",
        hits=("mkfs.ext4 /dev/sda", "mkfs -t ext4 /dev/sdb1", "mkswap /dev/sda2"),
        misses=("man 8 mkfs", "mkfs.ext4 ./disk.img", "mkfs.ext4 --help"),
    ),
    rule(
        "mkfs_unknown",
        "Makes a new file system on a device or in a file that is not known before the line runs",
        rf"^mk(?:fs(?:\.[a-z0-9]+)?|e2fs|dosfs|ntfs|swap){O} --{W} {ANY}$",
        "disk",
        "warning",
        hits=('mkfs.ext4 "$DEV"', "mkfs -t xfs $1"),
        misses=("mkfs.ext4 disk.img", 'mkfs.ext4 -d "$ROOT" disk.img', "mkfs.ext4 --help"),
    ),
    rule(
        "dd_if",
        "Writes to a whole disk",
        rf"^(?:write|append) {DISK}",
        "disk",
        "critical",
        view=View.EFFECT,
        rough=r"(?:\bof=|>\s*)[\"']?/dev/(?:[shv]d[a-z]|nvme|disk\d|mmcblk|xvd)",
        hits=(
            "dd if=x of=/dev/sda",
            "cat x > /dev/sda",
            "tee /dev/nvme0n1 < x",
            "cp x.img /dev/sdb",
            "> /dev/sda",
        ),
        misses=(
            "dd if=/dev/zero of=./img",
            "dd if=x of=/dev/null",
            "dd if=/dev/sda of=backup.img",
            "echo x > /dev/stderr",
        ),
    ),
    rule(
        "device_write",
        "Writes to a device that is not known to be harmless, as null, the terminals and /dev/shm are",
        rf"^(?:write|append) /dev/{none_of(HARMLESS_DEVICES)}$",
        "disk",
        "warning",
        view=View.EFFECT,
        hits=("dd if=x of=/dev/3d", "cat x > /dev/video0", "dd if=x of=/dev/nulf", "echo x > /dev/nul"),
        misses=("dd if=x of=/dev/null", "echo x > /dev/stderr", "echo x > /dev/shm/x", "echo x > /dev/tty1"),
    ),
    rule(
        "disk_tool",
        "Removes partitions, volumes, pools or keys of a disk",
        r"^(?:wipefs.* (?:-a|--all|-af|-o)(?: |$).*|blkdiscard .*|cryptsetup.* (?:luksFormat|luksErase|luksRemoveKey|luksKillSlot|erase|reencrypt)(?: |$).*|nvme.* (?:format|sanitize|write-zeroes) .*"
        r"|hdparm.* --(?:security-erase|trim-sector|make-bad-sector).*|sgdisk.* (?:-Z|-o|--zap-all|--zap|--clear|-d|--delete).*|zfs.* (?:destroy|rollback) .*|xfs_repair.* -L.*|zpool.* (?:destroy|labelclear|create) .*"
        r"|(?:lv|vg|pv)remove .*|(?:pv|vg)create .*/dev/.*|lvreduce .*|mdadm.* --(?:zero-superblock|stop|remove).*|diskutil.* (?:erase\w*|partitionDisk|zeroDisk|secureErase|reformat|apfs delete\w*)(?: |$).*"
        r"|btrfs.* (?:subvolume\sdelete|device\sdelete|subvolume delete|device delete).*|badblocks.* -w.*|sg_format .*|fdformat .*|parted.* (?:rm|mklabel|mkpart) .*|ddrescue.* --force.*|scrub .*)",
        "disk",
        "critical",
        hits=(
            "wipefs -a /dev/sda",
            "cryptsetup luksFormat /dev/sda2",
            "zfs destroy -r tank/data",
            "parted /dev/sda rm 1",
            "parted /dev/sda mklabel gpt",
        ),
        misses=("wipefs /dev/sda", "zfs list", "cryptsetup status x", "lvs", "nvme list"),
    ),
    rule(
        "partition_table",
        "Changes the partition table of a disk",
        r"^(?:sfdisk|fdisk|gdisk|cfdisk|cgdisk|sgdisk)(?: -(?:[^ ldpLVvJFiIsh-]|-(?:no|force|wipe|label|lock|delete))[^ ]*)* -- /dev/|^parted(?: -[^ ]*)* -- /dev/[^ ]+(?:$|(?: .*)? (?:mk\w*|rm|resizepart|rescue|set|name|toggle|disk_\w+)(?: |$))",
        "disk",
        "critical",
        hits=("sfdisk /dev/sda < table", "fdisk /dev/sda"),
        misses=(
            "fdisk -l /dev/sda",
            "sfdisk -d /dev/sda > t",
            "parted --list",
            "parted /dev/sda print",
            "sgdisk -p /dev/sda",
        ),
    ),
    rule(
        "umount_root",
        "Takes the root or a system file system away from what runs",
        rf"^umount{O} (?:--{W} (?:/|/usr|/home|/var|/boot|~)$|-a)",
        "disk",
        "critical",
        hits=("umount -l /", "umount -a"),
        misses=("umount /mnt/usb", "mount"),
    ),
    rule(
        "mount",
        "Changes which file systems are there, or makes one writable",
        r"^(?:mount(?: -[^ ]*)* -(?:o|-bind|-rbind|-move|t)\b.* -- [^ ]+ [^ ]+.*|umount(?: -[^ ]*)* -(?:f|l|-force|-lazy)\b.*|swapoff .*|swapon.* -- [^ ]+.*|losetup(?: -[^ ]*)* (?:-- [^ ]+|-(?:d|D|-detach)).*|resize2fs .*|tune2fs(?: -[^ ]*)* -[a-km-zA-Z][^ ]* --.*|mdadm.* --(?:create|grow|fail|add).*)",
        "disk",
        "warning",
        hits=("mount -o remount,rw /", "swapoff -a", "umount -f /srv/data", "resize2fs /dev/sda1 10G"),
        misses=(
            "mount",
            "findmnt /",
            "umount /mnt/usb",
            "swapon --show",
            "losetup -a",
            "tune2fs -l /dev/sda1",
        ),
    ),
)
