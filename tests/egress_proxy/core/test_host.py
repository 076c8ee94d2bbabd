"""Rules of core/host.py: what is a target, and that everything else is refused before any list is asked.

Lists are not asked here. See ../../properties/test_targets.py for random text.
"""

import dataclasses
from ipaddress import IPv4Address, IPv6Address

import pytest

from egress_proxy.core.host import (
    HostError,
    Name,
    Target,
    host_text,
    parse_authority,
    parse_host,
    parse_port,
    parse_web_authority,
)

CANONICAL = {
    "ok.example:443": "ok.example:443",
    "OK.Example:443": "ok.example:443",
    "ok.example.:443": "ok.example:443",
    "XN--BCHER-KVA.EXAMPLE:443": "xn--bcher-kva.example:443",
    "_dmarc.ok.example:443": "_dmarc.ok.example:443",
    "my_host:8080": "my_host:8080",
    "r3---sn-a5.ok.example:443": "r3---sn-a5.ok.example:443",
    "localhost:1": "localhost:1",
    "0.example:65535": "0.example:65535",
    "1.2.3.4.example:80": "1.2.3.4.example:80",
    "3com.4x:80": "3com.4x:80",
    "0x.example:80": "0x.example:80",
    "127.0.0.1:80": "127.0.0.1:80",
    "0.0.0.0:80": "0.0.0.0:80",
    "255.255.255.255:80": "255.255.255.255:80",
    "[::1]:443": "[::1]:443",
    "[0:0:0:0:0:0:0:1]:443": "[::1]:443",
    "[2001:DB8::0A]:443": "[2001:db8::a]:443",
    "[2001:db8::192.0.2.1]:443": "[2001:db8::c000:201]:443",
    "[::]:443": "[::]:443",
    "::1:443": "[::1]:443",
    "2001:db8::a:443": "[2001:db8::a]:443",
    "1:2:3:4:5:6:7:8:443": "[1:2:3:4:5:6:7:8]:443",
    "::ffff:127.0.0.1:443": "127.0.0.1:443",
}


@pytest.mark.parametrize(("text", "canonical"), CANONICAL.items())
def test_a_target_has_one_canonical_spelling(text: str, canonical: str) -> None:
    assert str(parse_authority(text)) == canonical
    assert parse_authority(canonical) == parse_authority(text)


def test_a_target_that_was_printed_is_the_same_target() -> None:
    printed, fresh = (Target(parse_host("ok.example"), 443) for _ in range(2))
    assert str(printed) == str(printed) == "ok.example:443"
    assert printed == fresh
    assert hash(printed) == hash(fresh)
    assert repr(printed) == repr(fresh)
    assert str(dataclasses.replace(printed, port=80)) == "ok.example:80"


def test_names_are_compared_without_case_and_final_dot() -> None:
    assert parse_host("Ok.EXAMPLE.") == parse_host("ok.example") == Name("ok.example")


def test_addresses_are_compared_as_addresses() -> None:
    spellings = ["[::1]", "[0:0:0:0:0:0:0:1]", "[0::0001]", "[::0.0.0.1]"]
    assert {parse_host(text) for text in spellings} == {IPv6Address("::1")}


@pytest.mark.parametrize("text", ["[::ffff:192.0.2.1]", "[::FFFF:c000:201]", "[0:0:0:0:0:ffff:192.0.2.1]"])
def test_a_mapped_literal_is_the_ipv4_host_that_it_reaches(text: str) -> None:
    assert parse_host(text) == IPv4Address("192.0.2.1")


@pytest.mark.parametrize(
    "text",
    ["[ok.example]", "[evil.test]", "[127.0.0.1]", "[]", "[:]", "[1]", "[::1", "::1]", "[[::1]]",
     "[::1]x", "x[::1]", "[::1].", "[::1].ok.example", "[::1]]", "[ ::1]", "[::1 ]", "[v1.x]",
     "[12345::1]", "[1:::2]", "[1:2:3:4:5:6:7:8:9]", "[::127.0.0.01]", "[::256.0.0.1]", "[::1::]",
     "[::g]", "[::１]"],
)  # fmt: skip
def test_brackets_hold_an_ipv6_address_and_nothing_else(text: str) -> None:
    for authority in (f"{text}:443", text):
        with pytest.raises(HostError):
            parse_authority(authority)


@pytest.mark.parametrize(
    "text",
    ["[fe80::1%lo]:443", "[fe80::1%25lo]:443", "[::1%.ok.example]:443", "[::1%25.ok.example]:443",
     "fe80::1%lo:443", "fe80::1%25.ok.example:443"],
)  # fmt: skip
def test_a_zone_id_is_refused(text: str) -> None:
    with pytest.raises(HostError):
        parse_authority(text)


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "ok.example..", "ok..example", ".ok.example", "..ok.example", "-ok.example",
     "ok-.example", "ok.-example", "ok.example-", "-", "*.ok.example", "*", "ok.*"],
)  # fmt: skip
def test_empty_and_broken_labels_are_refused(text: str) -> None:
    with pytest.raises(HostError):
        parse_authority(f"{text}:443")


@pytest.mark.parametrize(
    "text",
    ["2130706433", "0x7f.1", "0x7f000001", "0X7F000001", "0177.0.0.1", "127.1", "127.0.1",
     "017700000001", "0", "0x", "0xg", "127.0.0.1.", "169.254.169.254.", "0.0.0.0.", "256.0.0.1",
     "127.0.0.256", "1.2.3.4.5", "1.2.3.04", "00.0.0.0", "127.0.0.1.5", "ok.example.1", "ok.0x1f",
     "1", "999999999999", "1.2.3.", "1e3.1"],
)  # fmt: skip
def test_a_last_label_like_a_number_means_a_strict_dotted_quad(text: str) -> None:
    with pytest.raises(HostError):
        parse_authority(f"{text}:443")


@pytest.mark.parametrize(
    "text",
    ["127\u30020\u30020\u30021", "\uff11\uff12\uff17.0.0.1", "\u2460.example",
     "b\u00fccher.example", "o\u212a.example", "ok\uff0eexample", "ok\u00ad.example",
     "ok.example\u200b", "\u0661\u0662\u0667.0.0.1", "ok.example\ud800", "\u0130.example"],
)  # fmt: skip
def test_nothing_is_mapped_to_ascii(text: str) -> None:
    with pytest.raises(HostError):
        parse_authority(f"{text}:443")


GRAMMAR = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@pytest.mark.parametrize("foreign", [chr(byte) for byte in range(256) if chr(byte) not in GRAMMAR])
def test_no_other_byte_passes_anywhere_in_a_target(foreign: str) -> None:
    # A colon moves the split; what is left of it is then no address.
    for text in ("{}ok.example:443", "ok{}.example:443", "ok.example{}:443", "ok.example:{}443",
                 "ok.example:4{}43", "ok.example:443{}", "[::1{}]:443", "[::1]{}:443",
                 "127.0.0.1{}:443"):  # fmt: skip
        with pytest.raises(HostError):
            parse_authority(text.replace("{}", foreign))


@pytest.mark.parametrize(
    "text",
    ["ok.example:443@evil.test:443", "user:pw@ok.example:443", "user@ok.example:443",
     "ok.example:443/x", "ok.example:443#.evil.test", "ok.example:443?x",
     "ok.example:443\\@evil.test", "%6fk.example:443", "ok.example\t:443", "ok.example\n:443",
     "https://ok.example:443", "//ok.example:443", "ok.example:443,x:1", '"ok.example":443',
     "'ok.example':443", " ok.example:443", "ok.example:443 ", "ok.example:443\r\n"],
)  # fmt: skip
def test_an_authority_is_host_and_port_and_nothing_else(text: str) -> None:
    with pytest.raises(HostError):
        parse_authority(text)


@pytest.mark.parametrize(
    "text", ["ok.example", "127.0.0.1", "[::1]", "::1", "2001:db8::10000", ":443", ":", "", "443"]
)
def test_a_target_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(HostError):
        parse_authority(text)


@pytest.mark.parametrize(
    "text", ["ok.example::443", "a:b:443", "1.2.3.4:80:443", "ok.example:80:443", "1:2:443"]
)
def test_more_than_one_colon_means_an_ipv6_address(text: str) -> None:
    with pytest.raises(HostError):
        parse_authority(text)


@pytest.mark.parametrize("port", [1, 9, 80, 443, 8080, 65535])
def test_every_port_from_1_to_65535_is_read(port: int) -> None:
    assert parse_port(str(port)) == port


@pytest.mark.parametrize(
    "text",
    ["", "0", "00", "080", "0443", "65536", "99999", "100000", "+80", "-80", "8_0", "8 0", " 80",
     "80 ", "80\n", "0x50", "8e1", "80.0", "http", "*", "\u0664\u0664\u0663", "\uff14\uff14\uff13",
     "\u00b2", "9" * 5000],
)  # fmt: skip
def test_a_port_is_one_to_five_ascii_digits_without_leading_zero(text: str) -> None:
    with pytest.raises(HostError):
        parse_port(text)
    with pytest.raises(HostError):
        parse_authority(f"ok.example:{text}")


def test_a_label_has_at_most_63_characters() -> None:
    assert parse_host("a" * 63 + ".example") == Name("a" * 63 + ".example")
    for text in ("a" * 64 + ".example", "a." + "b" * 64, "a" * 300 + ".example"):
        with pytest.raises(HostError):
            parse_host(text)


def test_a_name_has_at_most_253_characters_beside_the_final_dot() -> None:
    longest = ".".join(["a" * 49] * 5) + ".abc"
    assert len(longest) == 253
    assert str(parse_host(longest)) == str(parse_host(longest + ".")) == longest
    with pytest.raises(HostError):
        parse_host("b" + longest)


def test_messages_do_not_quote_what_a_client_sent() -> None:
    for text in (
        "user:hunter2@ok.example:443",
        "hunter2",
        "[hunter2]:443",
        "ok.example:hunter2",
        "hunter2!:1",
    ):
        with pytest.raises(HostError) as refusal:
            parse_authority(text)
        assert "hunter2" not in str(refusal.value)


def test_the_canonical_text_needs_no_escaping_in_a_status_line() -> None:
    assert host_text(Name("a_b-c.example")) == "a_b-c.example"
    assert host_text(IPv4Address("192.0.2.1")) == "192.0.2.1"
    assert host_text(IPv6Address("2001:db8::1")) == "[2001:db8::1]"


def test_a_parsed_target_cannot_be_changed() -> None:
    target = parse_authority("ok.example:443")
    with pytest.raises(dataclasses.FrozenInstanceError):
        target.port = 25  # type: ignore[misc]
    assert target == Target(Name("ok.example"), 443)
    assert hash(target) == hash(parse_authority("OK.example.:443"))


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("OK.example", "ok.example:80"),
        ("ok.example.:8080", "ok.example:8080"),
        ("[::1]", "[::1]:80"),
        ("[::1]:8080", "[::1]:8080"),
        ("127.0.0.1", "127.0.0.1:80"),
    ],
)
def test_a_web_authority_may_leave_its_port_out(text: str, target: str) -> None:
    assert str(parse_web_authority(text, 80)) == target


@pytest.mark.parametrize(
    "text", ["", "ok.example:", "ok.example:x", "ok.example:080", "u@ok.example", "::1", "a b"]
)
def test_a_web_authority_is_no_more_lenient_for_the_rest(text: str) -> None:
    with pytest.raises(HostError):
        parse_web_authority(text, 80)
