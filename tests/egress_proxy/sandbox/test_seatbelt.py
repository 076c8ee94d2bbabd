"""What a Seatbelt profile lets a command do, as the evaluator reads it. Random policies: ../../properties.

No Mac is asked: the evaluator is tests/support/sbpl.py.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from egress_proxy.sandbox.obeyed_names import PROTECTED_NAMES
from egress_proxy.sandbox.seatbelt import (
    build_seatbelt_profile,
    profile_text,
    seatbelt_argv,
    seatbelt_policy,
)
from egress_proxy.sandbox.secret_places import SECRET_NAMES
from tests.support.sbpl import Profile

HOME, ROOT, SCRATCH = "/Users/u", "/Users/u/p", "/private/tmp/egress-1"
WRITES = ["data", "create", "unlink", "mode", "owner", "flags", "times", "xattr", "setugid"]
RESOLVER = "/private/var/run/mDNSResponder"
SOCKETS = ["/private/var/run/docker.sock", "/private/tmp/com.apple.launchd.x/Listeners", f"{ROOT}/a.sock"]


def profile(**policy: Any) -> Profile:
    return Profile(build_seatbelt_profile(**policy))


def writes(read: Profile, path: str) -> set[str]:
    return {kind for kind in WRITES if read.allows(f"file-write-{kind}", path)}


def test_writes_go_to_the_roots_and_nowhere_else() -> None:
    read = profile(writable_roots=[ROOT], scratch=[SCRATCH], home=HOME)
    for folder in (ROOT, SCRATCH):
        assert writes(read, f"{folder}/a/b") == {*WRITES} - {"setugid"}
    for path in ("/etc/hosts", HOME, f"{ROOT}x/a", f"{HOME}/.zshrc", "/private/tmp/x", "/dev/disk0", "/"):
        assert not writes(read, path)
    assert not writes(profile(), f"{ROOT}/a")


def test_a_root_stays_where_it_is() -> None:
    read = profile(writable_roots=[ROOT], scratch=[SCRATCH], protect=False)
    assert not read.allows("file-write-unlink", ROOT)
    assert not read.allows("file-write-unlink", SCRATCH)


def test_no_file_is_left_that_runs_as_somebody_else() -> None:
    for protect in (True, False):
        read = profile(writable_roots=[ROOT], protect=protect)
        assert not read.allows("file-write-setugid", f"{ROOT}/a")
        assert not read.allows("file-write-setugid", "/a")


def test_no_second_name_is_made_for_a_file() -> None:
    read = profile(writable_roots=[ROOT])
    for operation in ("file-link", "file-clone"):
        assert not read.allows(operation, f"{ROOT}/a")
        assert not read.allows(operation, "/etc/hosts")


def test_the_null_device_is_written_and_no_file_in_its_place() -> None:
    read = profile()
    assert read.allows("file-write-data", "/dev/null", vnode_type="CHARACTER-DEVICE")
    assert not read.allows("file-write-data", "/dev/null", vnode_type="REGULAR-FILE")
    assert not read.allows("file-write-unlink", "/dev/null", vnode_type="CHARACTER-DEVICE")
    assert read.allows("file-write-data", "/dev/fd/2")


def test_reads_are_open_but_for_what_is_masked() -> None:
    read = profile(writable_roots=[ROOT], home=HOME, masks=["/Users/u/notes"])
    for path in ("/etc/hosts", ROOT, f"{HOME}/.zshrc", f"{HOME}/.sshx", f"{ROOT}/.env.example"):
        assert read.allows("file-read-data", path)
    hidden = [f"{HOME}/{name}" for name in SECRET_NAMES]
    for path in (*hidden, f"{HOME}/.ssh/id_ed25519", "/Users/u/notes/a", f"{ROOT}/.env", f"{ROOT}/a/.env"):
        for operation in ("file-read-data", "file-read-metadata", "file-read-xattr", "file-write-data"):
            assert not read.allows(operation, path)


def test_nothing_is_masked_where_no_home_is_named() -> None:
    read = profile(writable_roots=[ROOT])
    assert read.allows("file-read-data", f"{HOME}/.ssh/id_ed25519")
    assert read.allows("file-read-data", f"{ROOT}/.env")


def test_a_mask_in_a_root_is_not_moved_away_with_its_folder() -> None:
    read = profile(writable_roots=[ROOT], masks=[f"{ROOT}/a/b/key"])
    for way in (ROOT, f"{ROOT}/a", f"{ROOT}/a/b", f"{ROOT}/a/b/key"):
        assert not read.allows("file-write-unlink", way)
    assert read.allows("file-write-unlink", f"{ROOT}/a/c")


@pytest.mark.parametrize("mask", [ROOT, HOME])
def test_a_root_behind_a_mask_is_refused(mask: str) -> None:
    with pytest.raises(ValueError, match=f"'{ROOT}'.*'{mask}'"):
        build_seatbelt_profile(writable_roots=[ROOT], masks=[mask])
    with pytest.raises(ValueError, match="masked"):
        build_seatbelt_profile(writable_roots=[f"{HOME}/.ssh/p"], home=HOME)


@pytest.mark.parametrize("root", [ROOT, SCRATCH])
@pytest.mark.parametrize("name", PROTECTED_NAMES)
def test_protected_names_are_neither_written_made_nor_moved(root: str, name: str) -> None:
    read = profile(writable_roots=[ROOT], scratch=[SCRATCH])
    for folder in (root, f"{root}/a/b"):
        assert not writes(read, f"{folder}/{name}")
        assert not writes(read, f"{folder}/{name}/x")
        assert read.allows("file-read-data", f"{folder}/{name}")


def moves(read: Profile, source: str, target: str) -> bool:
    """Whether a folder can be renamed, as the kernel checks it."""
    return read.allows("file-write-unlink", source, vnode_type="DIRECTORY") and read.allows(
        "file-write-create", target, vnode_type="DIRECTORY"
    )


def test_no_prepared_folder_takes_the_place_of_a_protected_one() -> None:
    read = profile(writable_roots=[ROOT], scratch=[SCRATCH])
    for away in (f"{ROOT}/old", f"{SCRATCH}/old", "/elsewhere"):
        for folder in (".git", ".git/hooks", ".git/info", ".git/modules/vendor/lib", ".git/modules/vendor"):
            assert not moves(read, f"{ROOT}/{folder}", away)
    for folder in (".git", "sub/.git", ".git/hooks", ".git/info", ".vscode", ".git/worktrees/w"):
        assert not moves(read, f"{SCRATCH}/mine", f"{ROOT}/{folder}")


def test_a_folder_with_a_repository_is_moved_and_stays_protected() -> None:
    read = profile(writable_roots=[ROOT], scratch=[SCRATCH])
    assert moves(read, f"{ROOT}/sub", f"{SCRATCH}/sub")
    assert not writes(read, f"{SCRATCH}/sub/.git/hooks/pre-commit")


def test_a_git_file_is_not_pointed_elsewhere() -> None:
    assert not writes(profile(writable_roots=[ROOT]), f"{ROOT}/wt/.git")


def test_commits_work_under_protection() -> None:
    read = profile(writable_roots=[ROOT])
    for name in ("index.lock", "objects/aa/b", "refs/heads/main", "HEAD", "logs/HEAD", "modules/lib/index"):
        assert {"data", "create", "unlink"} <= writes(read, f"{ROOT}/.git/{name}")


def test_protection_can_be_turned_off() -> None:
    assert "data" in writes(profile(writable_roots=[ROOT], protect=False), f"{ROOT}/.git/hooks/x")


def test_roots_are_the_ones_that_the_kernel_sees() -> None:
    text = build_seatbelt_profile(writable_roots=["/tmp"], scratch=["/var/folders/zz/a/T"])
    assert '(subpath "/private/tmp")' in text
    assert '(subpath "/private/var/folders/zz/a/T")' in text


CLOSED: list[dict[str, Any]] = [
    {"network": False},
    {"network": False, "allowed_hosts": ["localhost:1", "a.example"], "allow_resolver": True},
    {"network": False, "proxy_port": 1, "allow_trust": True},
    {"allowed_hosts": []},
]


@pytest.mark.parametrize("policy", CLOSED)
def test_closed_is_closed(policy: dict[str, Any]) -> None:
    read = profile(writable_roots=[ROOT], **policy)
    for host in ("127.0.0.1", "::1", "192.0.2.1"):
        assert not any(read.connects(host, port, way) for port in (1, 53, 443) for way in ("tcp", "udp"))
    for path in (RESOLVER, *SOCKETS):
        assert not read.allows("network-outbound", path)
    for service in ("com.apple.dnssd.service", "com.apple.trustd.agent", "com.apple.mDNSResponder"):
        assert not read.looks_up(service)


def test_a_proxy_port_is_the_only_way_out() -> None:
    read = profile(writable_roots=[ROOT], home=HOME, proxy_port=8899)
    assert read.connects("127.0.0.1", 8899)
    assert read.connects("::1", 8899)
    for host, port, way in [
        ("127.0.0.1", 8899, "udp"),
        ("127.0.0.1", 8900, "tcp"),
        ("192.0.2.1", 8899, "tcp"),
    ]:
        assert not read.connects(host, port, way)
    for path in (RESOLVER, *SOCKETS):
        assert not read.allows("network-outbound", path)
    assert not read.looks_up("com.apple.trustd.agent")
    assert build_seatbelt_profile(proxy_port=8899) == build_seatbelt_profile(allowed_hosts=["localhost:8899"])


@pytest.mark.parametrize("entry", ["*.co.uk", "**.co.uk:443", "*.github.io"])
def test_a_wildcard_over_a_public_suffix_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(entry))):
        build_seatbelt_profile(allowed_hosts=[entry], network=False)


@pytest.mark.parametrize(
    "entry",
    ["localhost:11434", "127.0.0.1:11434", "[::1]:11434", "127.9.8.7:11434", "[::ffff:127.0.0.2]:11434"],
)
def test_a_loopback_entry_pins_its_port(entry: str) -> None:
    text = build_seatbelt_profile(allowed_hosts=[entry])
    assert '(allow network-outbound (remote tcp "localhost:11434"))' in text
    assert "*:" not in text


def test_any_other_entry_is_its_ports_and_says_so() -> None:
    text = build_seatbelt_profile(allowed_hosts=["api.example", "b.example:443", "192.0.2.1:22"])
    read = Profile(text)
    ports = [port for port in (22, 53, 80, 443, 8080) if read.connects("203.0.113.9", port)]
    assert ports == [22, 80, 443]
    for entry in ("api.example", "b.example:443", "192.0.2.1:22"):
        assert f"\n; {entry}: Seatbelt knows no host names" in text


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({"allowed_hosts": ["localhost:1"]}, False),
        ({"allowed_hosts": ["localhost:1"], "allow_resolver": True}, True),
        ({"allowed_hosts": [], "allow_resolver": True}, True),
        ({"allowed_hosts": ["localhost:1", "a.example"]}, True),
        ({}, True),
    ],
)
def test_names_are_resolved_where_another_machine_is_listed(policy: dict[str, Any], kept: bool) -> None:
    read = profile(**policy)
    assert read.allows("network-outbound", RESOLVER) is kept
    assert read.looks_up("com.apple.dnssd.service") is kept


@pytest.mark.parametrize(
    ("policy", "kept"),
    [({"proxy_port": 1}, False), ({"proxy_port": 1, "allow_trust": True}, True), ({}, True),
     ({"allowed_hosts": ["a.example"]}, True)],
)  # fmt: skip
def test_certificates_are_fetched_by_nobody_else_where_the_proxy_is_the_way_out(
    policy: dict[str, Any], kept: bool
) -> None:
    read = profile(**policy)
    assert read.looks_up("com.apple.trustd") is read.looks_up("com.apple.trustd.agent") is kept


def test_open_egress_opens_no_socket_file_and_no_port_to_others() -> None:
    read = profile(writable_roots=[ROOT])
    assert read.connects("192.0.2.1", 443)
    assert read.connects("192.0.2.1", 53, "udp")
    assert not any(read.allows("network-outbound", path) for path in SOCKETS)
    for operation in ("network-bind", "network-inbound"):
        assert not read.allows(operation)


def test_other_processes_are_not_touched() -> None:
    read = profile()
    for operation in ("signal", "process-info-pidinfo"):
        assert read.allows(operation, target="same-sandbox")
        assert not read.allows(operation, target="others")
    assert not read.looks_up("kern.procargs2.1", "sysctl-read")
    assert not read.looks_up("com.apple.SecurityServer")
    assert not read.looks_up("com.apple.coreservices.launchservicesd")


def test_the_callers_terminal_is_reached_only_where_it_was_handed_in() -> None:
    for interactive in (True, False):
        read = profile(interactive=interactive)
        assert read.allows("file-ioctl", "/dev/ttys003") is interactive
        assert read.allows("file-write-data", "/dev/tty") is interactive
        assert read.allows("file-write-data", "/dev/ttys003", extension="com.apple.sandbox.pty")
        assert not read.allows("file-write-data", "/dev/ttys003")


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ({"allowed_hosts": ["ok.example", "https://a.example"]}, "https://a.example"),
        ({"allowed_hosts": ["a.example:0"], "network": False}, "a.example:0"),
        ({"writable_roots": ["/a\n(allow default)"]}, r"/a\\n"),
        ({"scratch": ['/a")']}, r'/a"\)'),
        ({"masks": ["a"]}, "mask 'a'"),
        ({"home": "/"}, "home folder '/'"),
        ({"proxy_port": 0}, "port 0"),
        ({"proxy_port": 65536}, "port 65536"),
        ({"proxy_port": 1, "allowed_hosts": []}, "exclude each other"),
    ],
)
def test_what_cannot_be_used_is_named(policy: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named) as refusal:
        build_seatbelt_profile(**policy)
    assert str(refusal.value).isprintable()


def test_the_command_follows_the_profile_and_is_no_option_of_it() -> None:
    assert seatbelt_argv("(version 1)", ["-f", "x"]) == (
        "/usr/bin/sandbox-exec", "-p", "(version 1)", "--", "-f", "x",
    )  # fmt: skip


GOLDEN: dict[str, dict[str, Any]] = {
    "closed": {"network": False},
    "open": {"writable_roots": [ROOT], "protect": False},
    "proxy": {"writable_roots": [ROOT], "scratch": [SCRATCH], "home": HOME, "proxy_port": 8899},
    "ports": {"allowed_hosts": ["localhost:11434", "api.example"], "interactive": True},
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_text_is_the_one_that_was_read_by_a_person(name: str) -> None:
    kept = Path(__file__).with_name("golden") / f"{name}.sb"
    assert kept.read_text() == build_seatbelt_profile(**GOLDEN[name])


def test_the_text_is_that_of_the_checked_policy() -> None:
    for policy in GOLDEN.values():
        assert profile_text(seatbelt_policy(**policy)) == build_seatbelt_profile(**policy)
