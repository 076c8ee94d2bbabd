"""Rules of core/dial_policy.py: at which addresses an allowed target is dialled, and what nobody can open.

The class of each address is in test_address.py; which entry opts in to what is in test_policy.py.
"""

from ipaddress import ip_address

import pytest

from egress_proxy.core.address import AddressClass, classify
from egress_proxy.core.decision import Allow, Deny, OptIn, Reason
from egress_proxy.core.dial_policy import METADATA_NAMES, is_metadata, judge_addresses, may_ever_dial
from egress_proxy.core.host import Name, Target, parse_authority, parse_host
from egress_proxy.core.policy import rule_index
from egress_proxy.core.rules import Ports, Suffix, parse_rule

# One address of each class, not hidden in another.
ONE_OF: dict[AddressClass, str] = {
    AddressClass.PUBLIC: "93.184.215.14",
    AddressClass.METADATA: "169.254.169.254",
    AddressClass.LOOPBACK: "127.0.0.1",
    AddressClass.PRIVATE: "10.0.0.1",
    AddressClass.LINK_LOCAL: "169.254.1.1",
    AddressClass.CARRIER_NAT: "100.64.0.1",
    AddressClass.MULTICAST: "224.0.0.1",
    AddressClass.UNSPECIFIED: "0.0.0.0",
    AddressClass.BROADCAST: "255.255.255.255",
    AddressClass.RESERVED: "240.0.0.1",
    AddressClass.DOCUMENTATION: "192.0.2.1",
    AddressClass.BENCHMARKING: "198.18.0.1",
    AddressClass.SITE_LOCAL: "fec0::1",
    AddressClass.EMBEDDED_IPV4: "2002:808:808::1",
}
PUBLIC = {AddressClass.PUBLIC}
INWARD = {
    AddressClass.LOOPBACK,
    AddressClass.PRIVATE,
    AddressClass.LINK_LOCAL,
    AddressClass.CARRIER_NAT,
    AddressClass.DOCUMENTATION,
    AddressClass.BENCHMARKING,
}
DIALLED = {
    OptIn.NONE: PUBLIC,
    OptIn.LOOPBACK: PUBLIC | {AddressClass.LOOPBACK},
    OptIn.INWARD: PUBLIC | INWARD,
    OptIn.ONLY_LOOPBACK: {AddressClass.LOOPBACK},
}
OWN = (parse_authority("127.0.0.1:8899"), parse_authority("[::1]:8899"))


def judged(
    authority: str,
    answers: str,
    opt_in: OptIn = OptIn.NONE,
    chain: tuple[str, ...] = (),
    own: tuple[Target, ...] = (),
) -> list[str] | Reason:
    """The addresses that may be dialled as text, or why none may."""
    allow = Allow(parse_authority(authority), "entry", opt_in)
    result = judge_addresses(allow, [ip_address(text) for text in answers.split()], chain, own)
    if isinstance(result, Deny):
        assert (result.target, result.rule) == (allow.target, "entry")
        return result.reason
    return [str(address) for address in result]


@pytest.mark.parametrize("opt_in", DIALLED)
@pytest.mark.parametrize("kind", AddressClass)
def test_only_what_the_entry_opts_in_to_is_dialled(opt_in: OptIn, kind: AddressClass) -> None:
    address = ONE_OF[kind]
    assert classify(ip_address(address)) is kind
    verdict = judged("ok.example:443", address, opt_in)
    if kind in DIALLED[opt_in]:
        assert verdict == [address]
    else:
        assert verdict is (Reason.METADATA if kind is AddressClass.METADATA else Reason.ADDRESS_NOT_PUBLIC)


def test_every_way_to_opt_in_is_held_above() -> None:
    assert DIALLED.keys() == set(OptIn) - {OptIn.LITERAL}
    assert ONE_OF.keys() == set(AddressClass)


NEVER = {AddressClass.METADATA, AddressClass.MULTICAST, AddressClass.UNSPECIFIED, AddressClass.BROADCAST}


@pytest.mark.parametrize("kind", AddressClass)
def test_a_literal_entry_opens_its_address_unless_nothing_may(kind: AddressClass) -> None:
    address = ip_address(ONE_OF[kind])
    target = Target(address, 8080)
    verdict = judge_addresses(Allow(target, "entry", OptIn.LITERAL), [address], (), ())
    if kind in NEVER:
        assert isinstance(verdict, Deny)
        assert verdict.reason is may_ever_dial(target, ())
        assert verdict.reason in (Reason.METADATA, Reason.ADDRESS_NOT_PUBLIC)
    else:
        assert verdict == (address,)
        assert may_ever_dial(target, ()) is None


@pytest.mark.parametrize("address", ["127.0.0.2", "10.0.0.1", "93.184.215.14", "::1", "64:ff9b::7f00:1"])
def test_a_literal_entry_opens_no_other_address(address: str) -> None:
    assert judged("127.0.0.1:8080", address, OptIn.LITERAL) is Reason.ADDRESS_NOT_PUBLIC
    assert judged("ok.example:8080", address, OptIn.LITERAL) is Reason.ADDRESS_NOT_PUBLIC


def test_a_literal_entry_opens_the_mapped_spelling_of_its_address() -> None:
    mapped = "::ffff:127.0.0.1"
    assert judged("127.0.0.1:8080", mapped, OptIn.LITERAL) == [str(ip_address(mapped))]


@pytest.mark.parametrize("opt_in", [OptIn.NONE, OptIn.LOOPBACK, OptIn.INWARD, OptIn.ONLY_LOOPBACK])
@pytest.mark.parametrize(
    "address",
    ["64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001:0:808:808::80ff:fffe",
     "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::a00:1", "2002:a00:1::1",
     "2001:0:808:808::f5ff:fffe", "2002:6440:1::"],
)  # fmt: skip
def test_loopback_inside_a_tunnel_address_is_not_our_loopback(opt_in: OptIn, address: str) -> None:
    """Such a packet leaves the machine: a credential sent to it in clear would go to strangers."""
    assert judged("localhost:443", address, opt_in) is Reason.ADDRESS_NOT_PUBLIC


@pytest.mark.parametrize("opt_in", [OptIn.LOOPBACK, OptIn.INWARD, OptIn.ONLY_LOOPBACK])
@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_is_loopback_in_both_families(opt_in: OptIn, address: str) -> None:
    assert judged("localhost:443", address, opt_in) == [address]


def test_a_mapped_answer_is_judged_as_the_host_that_it_reaches() -> None:
    for opt_in, kinds in DIALLED.items():
        for inner in ("93.184.215.14", "127.0.0.1", "10.0.0.1", "240.0.0.1"):
            reached = isinstance(judged("ok.example:443", f"::ffff:{inner}", opt_in), list)
            assert reached is (classify(ip_address(inner)) in kinds)


def test_nat64_of_a_public_host_is_dialled() -> None:
    assert judged("ok.example:443", "64:ff9b::5db8:d70e") == ["64:ff9b::5db8:d70e"]
    assert judged("ok.example:443", "64:ff9b::5db8:d70e", OptIn.ONLY_LOOPBACK) is Reason.ADDRESS_NOT_PUBLIC


def test_of_mixed_answers_the_refused_ones_are_dropped_in_order() -> None:
    answers = "10.0.0.1 93.184.215.14 169.254.169.254 2606:4700::1111 127.0.0.1 1.1.1.1"
    assert judged("ok.example:443", answers) == ["93.184.215.14", "2606:4700::1111", "1.1.1.1"]
    assert judged("ok.example:443", answers, OptIn.ONLY_LOOPBACK) == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [("10.0.0.1 127.0.0.1", Reason.ADDRESS_NOT_PUBLIC),
     ("10.0.0.1 169.254.169.254", Reason.METADATA), ("127.0.0.1 10.0.0.1", Reason.OWN_LISTENER),
     ("127.0.0.1 169.254.169.254", Reason.METADATA), ("", Reason.NO_SUCH_NAME)],
)  # fmt: skip
def test_none_left_is_refused_for_the_worst_of_them(answers: str, reason: Reason) -> None:
    opt_in = OptIn.INWARD if reason is Reason.OWN_LISTENER else OptIn.NONE
    own = (*OWN, parse_authority("10.0.0.1:8899")) if reason is Reason.OWN_LISTENER else ()
    assert judged("ok.example:8899", answers, opt_in, own=own) is reason


def test_a_refusal_names_the_kinds_of_addresses_but_no_address() -> None:
    allow = Allow(parse_authority("ok.example:443"), "ok.example", OptIn.NONE)
    result = judge_addresses(allow, [ip_address("10.1.2.3"), ip_address("::1")], (), ())
    assert isinstance(result, Deny)
    assert result.detail == "its addresses are loopback, private"


@pytest.mark.parametrize("opt_in", OptIn)
@pytest.mark.parametrize(
    "alias", ["metadata.google.internal", "METADATA.google.internal.", "instance-data.", "metadata"]
)
def test_a_metadata_name_anywhere_in_the_alias_chain_refuses(opt_in: OptIn, alias: str) -> None:
    for chain in ((alias,), ("ok.example.", alias, "edge.example."), ("a.example", alias)):
        assert judged("93.184.215.14:80", "93.184.215.14", opt_in, chain) is Reason.METADATA


@pytest.mark.parametrize("alias", ["edge.example.", "metadata.example",
                                   "x.metadata.google.internal.example",
                                   "metadata.google.internal..", "a b.example", "", "\\032.example",
                                   "*.x", "127.1"])  # fmt: skip
def test_other_names_in_the_chain_are_judged_by_their_addresses(alias: str) -> None:
    assert judged("ok.example:443", "1.1.1.1", chain=(alias,)) == ["1.1.1.1"]
    assert judged("ok.example:443", "10.0.0.1", chain=(alias,)) is Reason.ADDRESS_NOT_PUBLIC


@pytest.mark.parametrize("opt_in", [OptIn.LOOPBACK, OptIn.INWARD, OptIn.ONLY_LOOPBACK])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_our_own_listeners_are_never_dialled(opt_in: OptIn, address: str) -> None:
    assert judged("localhost:8899", address, opt_in, own=OWN) is Reason.OWN_LISTENER
    assert isinstance(judged("localhost:8898", address, opt_in, own=OWN), list)


@pytest.mark.parametrize("authority", ["127.0.0.1:8899", "[::1]:8899", "[::ffff:127.0.0.1]:8899", "::1:8899"])
def test_our_own_listeners_are_not_dialled_as_literals_either(authority: str) -> None:
    target = parse_authority(authority)
    assert not isinstance(target.host, Name)
    verdict = judge_addresses(Allow(target, "entry", OptIn.LITERAL), [target.host], (), OWN)
    assert isinstance(verdict, Deny)
    assert verdict.reason is Reason.OWN_LISTENER
    assert may_ever_dial(target, OWN) is Reason.OWN_LISTENER


def test_listeners_are_addresses_and_a_name_among_them_is_nobodys() -> None:
    own = (parse_authority("localhost:8899"),)
    assert judged("localhost:8899", "127.0.0.1", OptIn.LOOPBACK, own=own) == ["127.0.0.1"]


def test_another_loopback_address_is_not_our_listener() -> None:
    assert judged("localhost:8899", "127.0.0.2", OptIn.LOOPBACK, own=OWN) == ["127.0.0.2"]
    assert may_ever_dial(parse_authority("127.0.0.2:8899"), OWN) is None


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::", "::ffff:0.0.0.0"])
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1", "10.0.0.1", "192.168.1.2", "fd00::1"])
def test_a_listener_on_every_address_is_ours_on_each_of_them(everywhere: str, address: str) -> None:
    own = (Target(ip_address(everywhere), 8899),)
    assert judged("ok.example:8899", address, OptIn.INWARD, own=own) is Reason.OWN_LISTENER
    assert judged("ok.example:443", address, OptIn.INWARD, own=own) == [address]
    assert may_ever_dial(Target(ip_address(address), 8899), own) is Reason.OWN_LISTENER
    assert judged("ok.example:8899", "1.1.1.1", own=own) == ["1.1.1.1"]


def test_a_listener_on_a_mapped_or_public_address_is_ours() -> None:
    mapped = (Target(ip_address("::ffff:10.0.0.1"), 8899),)
    assert judged("ok.example:8899", "10.0.0.1", OptIn.INWARD, own=mapped) is Reason.OWN_LISTENER
    public = (Target(ip_address("93.184.215.14"), 8899),)
    assert judged("ok.example:8899", "93.184.215.14", own=public) is Reason.OWN_LISTENER


# Whoever adds a name to the product adds it here, with the vendor in mind.
KNOWN = [
    "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
    "metadata.tencentyun.com", "metadata.packet.net", "metadata.platformequinix.com",
    "api.metadata.cloud.ibm.com",
]  # fmt: skip


def test_no_metadata_name_gets_lost() -> None:
    assert sorted(METADATA_NAMES) == sorted(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_metadata_names_are_known_in_every_spelling(name: str) -> None:
    for text in (name, name.upper(), name + "."):
        assert is_metadata(parse_host(text))
        assert may_ever_dial(parse_authority(f"{text}:80"), ()) is Reason.METADATA
    assert not is_metadata(parse_host("x" + name))
    assert not is_metadata(parse_host(name + ".example"))


@pytest.mark.parametrize(
    "literal", ["169.254.169.254", "[::ffff:a9fe:a9fe]", "[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]"]
)
def test_metadata_addresses_can_never_be_opened(literal: str) -> None:
    assert is_metadata(parse_host(literal))
    assert may_ever_dial(parse_authority(f"{literal}:80"), ()) is Reason.METADATA


@pytest.mark.parametrize(
    ("authority", "reason"),
    [("ok.example:8899", None), ("localhost:8898", None), ("localhost:8899", Reason.OWN_LISTENER),
     ("LOCALHOST.:8899", Reason.OWN_LISTENER), ("127.0.0.1:11434", None), ("10.0.0.1:443", None),
     ("0.0.0.0:8898", Reason.ADDRESS_NOT_PUBLIC), ("[::]:443", Reason.ADDRESS_NOT_PUBLIC),
     ("224.0.0.1:443", Reason.ADDRESS_NOT_PUBLIC),
     ("255.255.255.255:443", Reason.ADDRESS_NOT_PUBLIC),
     ("[ff02::1]:443", Reason.ADDRESS_NOT_PUBLIC),
     ("[::ffff:0.0.0.0]:443", Reason.ADDRESS_NOT_PUBLIC)],
)  # fmt: skip
def test_an_entry_that_could_never_work_is_known_before_any_lookup(
    authority: str, reason: Reason | None
) -> None:
    assert may_ever_dial(parse_authority(authority), OWN) is reason


def test_a_denied_address_is_not_dialled_under_any_name() -> None:
    deny = rule_index([parse_rule("127.0.0.1:8000", lambda _: Suffix.NONE, bare_ports=Ports.ANY)])
    allow = Allow(parse_authority("ok.example:8000"), "ok.example", OptIn.INWARD)
    denied, other = ip_address("127.0.0.1"), ip_address("10.0.0.1")
    refused = judge_addresses(allow, [denied], (), (), deny)
    assert isinstance(refused, Deny)
    assert refused.reason is Reason.DENIED_BY_RULE
    assert judge_addresses(allow, [denied, other], (), (), deny) == (other,)
    elsewhere = Allow(parse_authority("ok.example:9000"), "ok.example", OptIn.INWARD)
    assert judge_addresses(elsewhere, [denied], (), (), deny) == (denied,)
