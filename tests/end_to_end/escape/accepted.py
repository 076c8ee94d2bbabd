"""What is known to get out, rung by rung, each with the reason why it is left: nothing else may.

A test compares sets, so an entry that no longer escapes must go. Next: test_battery_bwrap.py,
test_battery_landlock.py, egress_proxy/sandbox/landlock_gaps.py (the same as the user is told it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Reasons = Mapping[str, str]


def of(reason: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


_NEW_NAMES = "a name that was not there cannot be protected without littering the root: reported as planted"
EVERYWHERE: Reasons = {
    **of(
        _NEW_NAMES,
        "git_nested_repo_plant",
        "git_bare_repo_plant",
        "git_commondir_plant",
        "git_attributes_plant",
        "envrc_mcp_plant",
    ),
    **of(
        "ordinary work changes these too, so they are not protected: reported as planted",
        "agents_orders_plant",
        "workflow_plant",
        "settings_of_tools_plant",
        "git_rebase_todo_plant",
    ),
    **of("a name that is a link cannot be mounted on: a gap, and reported", "protected_link_replaced"),
    **of("a second name from before leads past every mount: reported", "git_config_by_old_hardlink"),
    **of("repositories are looked for so deep and no deeper (protected.DEPTH)", "git_deep_repo_plant"),
}
"""On every rung."""

FROM_OURS: Reasons = of(
    "no hook sees fchmod; the host gives a pipe or /dev/null, as the printed command line does",
    "stdin_file_chmod",
)
"""From a process of ours, which hands its own stdin in."""

_NO_PROTECTION = "a root is granted as a whole: changes are reported as planted (landlock:names-in-roots)"
LANDLOCK: Reasons = {
    **EVERYWHERE,
    **of(
        _NO_PROTECTION,
        "git_hook_plant",
        "git_hook_by_umount",
        "git_config_plant",
        "git_dir_rename_plant",
        "git_dir_exchange_plant",
        "git_hooks_exchange_plant",
        "git_module_config_plant",
        "git_module_hook_plant",
        "git_module_rename_plant",
        "git_pointer_repointed",
        "git_pointer_replaced",
        "git_pointer_folder_renamed",
        "vscode_tasks_plant",
        "vscode_dir_rename_plant",
        "git_config_by_new_hardlink",
        "protected_link_target_plant",
        "bashrc_in_root_replaced",
        "start_files_of_tools_plant",
    ),
    **of(
        "for the same reason it can be read (landlock:masks-in-roots)",
        "read_dotenv_in_root",
        "read_dotenv_renamed",
        "read_dotenv_by_other_names",
        "read_dotenv_of_moved_folder",
    ),
    **of(
        "no ABI has a hook on it (landlock:metadata)",
        "chmod_outside",
        "fchmod_via_rdonly_fd",
        "setxattr_outside",
        "utime_outside",
        "set_inode_flags",
    ),
    **of("reads are open, and /tmp is the host's", "read_tmp_other_sessions"),
    **of("/proc is the host's (landlock:proc)", "proc_cmdline_scan"),
    **of("getaddrinfo and every runtime ask for them; it only reads", "netlink_route"),
    **of(
        "what is in a session of its own outlives a killed supervisor, confined and with no network",
        "daemon_outlives_killed_runner",
    ),
}
"""Supervised or without network, of this kernel's ABI."""
LANDLOCK_ORDINARY: Reasons = of("as with chmod; root has lost the capability for it", "chown_outside")
"""Besides, as an ordinary user, who may always give a file of his to one of his groups."""

LANDLOCK_OLDER: Mapping[int, Reasons] = {
    3: of(
        "landlock.abi<3:truncate",
        "truncate_path",
        "truncate_rdonly_open",
    ),
    6: of(
        "landlock.abi<6:signals",
        "signal_host_process",
        "signal_group_host",
        "pidfd_signal_host",
        "proc_folder_signal_host",
        "tgkill_host",
        "sigqueue_host",
        "sigio_setown_host",
        "runner_kill",
        "runner_stop",
    ),
}
"""Besides, on every ABI below the number."""

BROKEN_EVERYWHERE: Reasons = of(
    "ptrace is refused, so strace, gdb and leak checks do not work: bwrap's first process and the supervisor"
    " could be traced too (LSAN_OPTIONS=detect_leaks=0 is set, so what is built with AddressSanitizer runs)",
    "control_trace_own_child",
)
BROKEN_ON_LANDLOCK: Reasons = {
    **of("bind and listen are the host's, and refused", "control_localhost_server"),
    **of("/tmp is the host's and is not granted; TMPDIR names a folder of its own", "control_tmp_by_name"),
    **of("its locks are in the host's /dev/shm, which is not granted", "control_multiprocessing_queue"),
}
BROKEN_WITHOUT_SUPERVISOR: Reasons = of(
    "the supervisor opens the terminals of ptys, and there is one for the way to the proxy alone",
    "control_terminal_of_its_own",
)
BLOCKED_ON_ABI_1 = frozenset({"git_config_by_new_hardlink", "read_dotenv_of_moved_folder"})
BROKEN_ON_ABI_1: Reasons = of("REFER came with ABI 2: no link or rename across folders", "control_mkdir_link")

_NO_PRIVILEGE = (
    "bpf_prog_load", "caps_left", "cgroup_write", "chroot_into_root", "core_pattern_open", "fsopen_tmpfs",
    "ip_source_route", "mknod_blockdev_in_root", "mknod_chardev_mem", "mount_api_clone_tree",
    "open_by_handle", "open_raw_disk", "packet_socket", "perf_event", "proc_first_environ",
    "proc_ppid_environ", "process_madvise_host", "raw_socket", "remount_rw_no_userns", "setcap_plant_in_root",
    "sethostname_same", "setns_by_pidfd", "setns_host", "socket_filter_attach", "sysctl_net_open",
    "sysfs_helper_open", "tiocsti_from_own_session", "userfaultfd_open", "write_cron",
    "write_ld_so_preload_dir", "write_path_bin", "read_disk_or_screen",
)  # fmt: skip
_SOME_KERNELS = (
    "af_alg_socket", "bind_to_device", "exotic_families", "fanotify_watch", "icmp_ping_socket",
    "io_uring_available", "io_uring_connect", "io_uring_udp_socket", "kcmp_host", "keyctl_session",
    "keyctl_user", "mptcp_connect", "pidfd_getfd_host", "posix_mq_open", "proc_pid_mem_write",
    "process_vm_read", "ptrace_attach", "sctp_socket", "seccomp_foreign_arch", "set_inode_flags",
    "setuid_by_fchmodat2", "setuid_hardlink", "setxattr_outside", "smc_connect", "tiocsti_high_bits",
    "tiocsti_inject", "tiocsti_via_dev_tty", "userns_by_clone", "userns_by_clone3", "userns_create",
    "userns_remount_rw", "vsock_socket",
)  # fmt: skip

NOT_REPORTED = frozenset({"git_deep_repo_plant"})
"""Left behind without a word; all else that is left behind is told of."""

MAY_BE_MISSING = frozenset({
    "attach_from_inside",
    "binfmt_open",
    "cgroup_write",
    "control_node",
    "control_proxy",
    "dynlinker_exec",
    "modify_ldt_write",
    "seccomp_foreign_arch",
    "seccomp_x32",
    "sysctl_net_open",
    "sysfs_helper_open",
    "sysrq_open",
    "tcp_direct_v6",
    "tracing_open",
    "udp_sendto_v6",
    "unix_run_connect",
    "userns_by_clone",
    "write_cron",
})  # fmt: skip
"""What an attempt aims at is not on every machine, or not for everyone, or not in every sandbox."""

UNCONFINED: Reasons = {
    **of("no privilege", *_NO_PRIVILEGE),
    **of("no such thing, or it is switched off, on some kernels", *_SOME_KERNELS),
    **of("the kernel refuses it in any case", "ftruncate_rdonly", "mmap_shared_write", "seccomp_x32"),
    **of("it is our own programs that could do it", "code_planted_for_the_start", "descriptors_left"),
}
"""What does not get out of no sandbox at all, as an ordinary user."""


def older(abi: int) -> Reasons:
    return joined(reasons for first, reasons in LANDLOCK_OLDER.items() if abi < first)


def joined(parts: Iterable[Reasons]) -> Reasons:
    return {name: reason for part in parts for name, reason in part.items()}
