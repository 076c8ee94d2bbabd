"""The reader of Seatbelt profiles refuses what Apple's compiler refuses, and decides as the kernel should.

See ../sbpl.py.
"""

import pytest

from tests.support.sbpl import Profile, ProfileError, Undecided

HEAD = "(version 1)\n(deny default)\n"


@pytest.mark.parametrize(
    "rule",
    [
        '(allow network-outbound (remote tcp "192.0.2.1:443"))',
        '(allow network-outbound (remote tcp "api.example:443"))',
        '(allow network-outbound (remote tcp "127.0.0.1:443"))',
        '(allow network-outbound (remote tcp "localhost"))',
        '(allow network-outbound (remote tcp "localhost:0"))',
        '(allow network-outbound (remote tcp "localhost:65536"))',
        '(allow network-outbound (remote tcp "localhost:1-9"))',
        '(allow network-outbound (remote sctp "localhost:1"))',
        '(allow file-wriet* (subpath "/x"))',
        '(allow (subpath "/x"))',
        '(allow file-write* (subpath "x"))',
        '(allow file-write* (subpath "/x/"))',
        '(allow file-write* (subpath "/x\\"))',
        '(allow file-write* (subpath "/x)',
        '(allow file-write* (folder "/x"))',
        '(allow file-write* (regex "^/x$"))',
        '(allow file-write* (regex #"^/x"))',
        '(allow file-write* (regex #"/x$"))',
        '(allow file-write* (regex #"^/(x$"))',
        '(allow file-write* (regex #"^/x{2}$"))',
        '(allow file-write* (regex #"^/(?i)x$"))',
        r'(allow file-write* (regex #"^/\w$"))',
        "(allow file-read*) (deny file-read*)",
        "(allow file-read*",
        "(allow file-read*))",
        "(import file-read*)",
        "allow",
    ],
)
def test_what_does_not_compile_is_refused(rule: str) -> None:
    with pytest.raises(ProfileError):
        Profile(HEAD + rule)


def test_a_profile_denies_by_default() -> None:
    for text in ("", "(version 1)", "(version 1)(allow default)", "(deny default)"):
        with pytest.raises(ProfileError):
            Profile(text)
    assert not Profile(HEAD).allows("process-exec")


def test_an_operation_nobody_knows_is_no_answer() -> None:
    with pytest.raises(ProfileError):
        Profile(HEAD).allows("file-wriet-data", "/x")


def test_the_last_rule_that_matches_wins() -> None:
    profile = Profile(
        HEAD + '(allow file-read*)(deny file-read* (subpath "/a"))(allow file-read-data (literal "/a/b"))'
    )
    reads = [profile.allows("file-read-data", path) for path in ("/x", "/a", "/a/b", "/a/b/c", "/ab")]
    assert reads == [True, False, True, False, True]
    assert not profile.allows("file-read-metadata", "/a/b")


def test_a_profile_that_rests_on_the_reading_of_the_order_is_no_answer() -> None:
    profile = Profile(HEAD + '(allow file-write* (subpath "/a"))(deny file-write-setugid)')
    with pytest.raises(Undecided):
        profile.allows("file-write-setugid", "/a/b")


def test_a_pattern_matches_names_with_line_ends() -> None:
    profile = Profile(HEAD + '(allow file-write* (regex #"^/([^/]+/)*x$"))')
    assert profile.allows("file-write-data", "/a\nb/x")
    assert not profile.allows("file-write-data", "/x\n")


def test_conditions_must_all_hold() -> None:
    profile = Profile(
        HEAD + '(allow file-write-data (require-all (literal "/n") (vnode-type CHARACTER-DEVICE)))'
    )
    assert profile.allows("file-write-data", "/n", vnode_type="CHARACTER-DEVICE")
    assert not profile.allows("file-write-data", "/n")


def test_addresses_compare_by_protocol_host_and_port() -> None:
    profile = Profile(
        HEAD + '(allow network-outbound (remote tcp "localhost:1") (remote ip "*:2"))'
        '(allow network-outbound (literal "/socket"))'
    )
    assert profile.connects("127.0.0.1", 1)
    assert profile.connects("::1", 1)
    assert profile.connects("192.0.2.1", 2, "udp")
    assert not profile.connects("127.0.0.1", 1, "udp")
    assert not profile.connects("192.0.2.1", 1)
    assert not profile.connects("127.0.0.1", 3)
    assert profile.allows("network-outbound", "/socket")
    assert not profile.allows("network-outbound", "/other")


def test_names_compare_whole_or_by_their_beginning() -> None:
    profile = Profile(
        HEAD + '(allow mach-lookup (global-name "a.b"))(allow sysctl-read (sysctl-name-prefix "hw."))'
    )
    assert profile.looks_up("a.b")
    assert not profile.looks_up("a.b.c")
    assert profile.looks_up("hw.ncpu", "sysctl-read")
    assert not profile.looks_up("kern.hw.ncpu", "sysctl-read")


def test_comments_end_with_their_line() -> None:
    assert not Profile(HEAD + "; (allow process-exec)\n").allows("process-exec")
    assert Profile(HEAD + "; x\n(allow process-exec)").allows("process-exec")
