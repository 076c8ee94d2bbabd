"""Rules of core/rules.py: what an entry may say, what it covers, and how a bad one is explained.

Many entries at once are in test_rule_index.py; who wins is in test_policy.py.
"""

import pytest

from egress_proxy.core.host import parse_authority
from egress_proxy.core.rules import Ports, Rule, RuleError, Scope, Suffix, parse_rule
from tests.egress_proxy.core.entries import allow_entry, deny_entry


def covers(entry: Rule | str, authority: str) -> bool:
    rule = allow_entry(entry) if isinstance(entry, str) else entry
    return rule.matches(parse_authority(authority))


# Entry -> its canonical text.
ENTRIES = {
    "ok.example": "ok.example",
    "OK.Example.": "ok.example",
    "ok.example:22": "ok.example:22",
    "ok.example:1": "ok.example:1",
    "ok.example:65535": "ok.example:65535",
    "ok.example:*": "ok.example:*",
    "ok.example.:8080": "ok.example:8080",
    "*.ok.example": "*.ok.example",
    "*.OK.example:8443": "*.ok.example:8443",
    "*.ok.example:*": "*.ok.example:*",
    "**.ok.example": "**.ok.example",
    "**.a.ok.example:*": "**.a.ok.example:*",
    "localhost": "localhost",
    "localhost:11434": "localhost:11434",
    "github.io": "github.io",
    "com": "com",
    "127.0.0.1": "127.0.0.1",
    "127.0.0.1:8080": "127.0.0.1:8080",
    "127.0.0.1:*": "127.0.0.1:*",
    "[::1]": "[::1]",
    "[0:0::1]:8080": "[::1]:8080",
    "[2001:DB8::1]:*": "[2001:db8::1]:*",
    "[::ffff:127.0.0.1]:80": "127.0.0.1:80",
    "xn--bcher-kva.example": "xn--bcher-kva.example",
    "*._tcp.ok.example": "*._tcp.ok.example",
}


@pytest.mark.parametrize(("text", "canonical"), ENTRIES.items())
def test_an_entry_is_printed_as_it_would_be_written(text: str, canonical: str) -> None:
    rule = allow_entry(text)
    assert str(rule) == canonical
    assert allow_entry(canonical) == rule


def test_the_parts_of_an_entry_are_printed_apart_for_the_control_api() -> None:
    parts = [(rule.entry_host, rule.port_text) for rule in map(allow_entry, ("H.example", "h.example:8080"))]
    assert parts == [("h.example", "80,443"), ("h.example", "8080")]
    wildcard = allow_entry("**.h.example:*")
    assert (wildcard.entry_host, wildcard.port_text) == ("**.h.example", "*")
    assert allow_entry("[::1]:80").entry_host == "[::1]"


BOUNDARIES = {
    "ok.example": {
        "ok.example:443": True,
        "OK.EXAMPLE:443": True,
        "ok.example.:443": True,
        "a.ok.example:443": False,
        "notok.example:443": False,
        "ok.example.evil.test:443": False,
        "okxexample:443": False,
        "example:443": False,
    },
    "*.wild.example": {
        "a.wild.example:443": True,
        "a.b.wild.example:443": True,
        "_x.wild.example:443": True,
        "wild.example:443": False,
        "xwild.example:443": False,
        "x-wild.example:443": False,
        "wild.example.evil.test:443": False,
        "a.wild.example.evil.test:443": False,
    },
    "**.wild.example": {
        "wild.example:443": True,
        "a.wild.example:443": True,
        "a.b.wild.example:443": True,
        "xwild.example:443": False,
        "wild.examplex:443": False,
        "example:443": False,
    },
}


@pytest.mark.parametrize(
    ("entry", "authority", "covered"),
    [(entry, authority, yes) for entry, asked in BOUNDARIES.items() for authority, yes in asked.items()],
)
def test_a_pattern_ends_at_a_dot(entry: str, authority: str, covered: bool) -> None:
    assert covers(entry, authority) is covered


@pytest.mark.parametrize(
    ("entry", "ports"),
    [
        ("ok.example", {80, 443}),
        ("ok.example:22", {22}),
        ("ok.example:443", {443}),
        ("*.ok.example:25", {25}),
    ],
)
def test_an_entry_opens_just_its_ports(entry: str, ports: set[int]) -> None:
    host = "a.ok.example" if entry.startswith("*") else "ok.example"
    rule = allow_entry(entry)
    assert {port for port in range(1, 65536) if rule.admits_port(port)} == ports
    assert {port for port in (22, 25, 80, 443, 8443) if covers(entry, f"{host}:{port}")} == ports


def test_any_port_has_to_be_said() -> None:
    assert all(map(allow_entry("ok.example:*").admits_port, range(1, 65536)))


def test_a_bare_deny_entry_means_every_port() -> None:
    assert deny_entry("ok.example").ports is Ports.ANY
    assert str(deny_entry("ok.example")) == "ok.example:*"
    assert deny_entry("ok.example:25").ports == 25
    assert allow_entry("ok.example").ports is Ports.WEB


@pytest.mark.parametrize("authority", ["127.0.0.1:443", "10.0.0.1:443", "[::1]:443", "[2001:db8::1]:443"])
def test_wildcards_never_match_addresses(authority: str) -> None:
    assert not covers("*.ok.example:*", authority)
    assert not covers("**.ok.example:*", authority)
    for scope in (Scope.BELOW, Scope.APEX_AND_BELOW):
        over_address = Rule(scope, parse_authority(authority).host, Ports.ANY)
        assert not over_address.matches(parse_authority(authority))
        assert not covers(over_address, "a.ok.example:443")


@pytest.mark.parametrize("text", ["*.127.0.0.1", "**.127.0.0.1", "*.[::1]", "**.[::1]:443", "*.0.0.1"])
def test_a_wildcard_before_an_address_is_refused(text: str) -> None:
    with pytest.raises(RuleError, match=r"wildcard|number"):
        allow_entry(text)


def test_address_entries_compare_as_addresses() -> None:
    assert covers("[::1]", "[0:0:0:0:0:0:0:1]:443")
    assert covers("[::ffff:192.0.2.1]", "192.0.2.1:443")
    assert covers("192.0.2.1", "[::ffff:c000:201]:443")
    assert not covers("[::1]", "127.0.0.1:443")


# Entry -> a word of the message beside the entry itself.
REFUSED = {
    "": "empty",
    "*": "star",
    "**": "star",
    "*.": "host",
    "**.": "host",
    "*:443": "star",
    "*.*": "star",
    "*.*.ok.example": "star",
    "a.*.example": "star",
    "*ok.example": "star",
    "o*.example": "star",
    "***.ok.example": "star",
    "**.*.ok.example": "star",
    "ok.example.*": "star",
    "ok.*": "star",
    "[*]": "star",
    "ok.example:4*": "star",
    "ok.example:**": "star",
    "https://ok.example": "scheme",
    "http://ok.example:80": "scheme",
    "ok.example/path": "path",
    "ok.example/": "path",
    "ok.example:443/": "path",
    "a.example,b.example": "several",
    "ok.example:80,443": "several",
    "ok.example:80,443,8080": "several",
    " ok.example": "blank",
    "ok.example ": "blank",
    "ok.example\n": "blank",
    "ok. example": "blank",
    "ok.example :443": "blank",
    "ok.example\t": "blank",
    "a\nINFO allowed evil.test": "blank",
    "::1": "brackets",
    "::1:443": "brackets",
    "2001:db8::1": "brackets",
    "ok.example:": "port",
    "ok.example:0": "port",
    "ok.example:65536": "port",
    "ok.example:080": "port",
    "ok.example:http": "port",
    "ok.example:-1": "port",
    "ok.example:80:443": "brackets",
    "[ok.example]": "IPv6",
    "[127.0.0.1]:80": "IPv6",
    "[fe80::1%lo]": "IPv6",
    "[::1": "bracket",
    "ok..example": "host",
    "ok.example..": "host",
    ".ok.example": "host",
    "user@ok.example": "host",
    "ok.example?x": "host",
    "ok.example#x": "host",
    "%6fk.example": "host",
    "ok.example\x00": "host",
    "o@k.example:*": "neither",
    "2130706433": "number",
    "127.1": "number",
    "0x7f.1": "number",
    "127.0.0.1.": "number",
    "a" * 64 + ".example": "63",
    "a." * 127 + "example": "253",
    "b\u00fccher.example": "xn--bcher-kva.example",
    "*.b\u00fccher.example": "*.xn--bcher-kva.example",
    "**.b\u00fccher.example:8443": "**.xn--bcher-kva.example:8443",
    "B\u00dcCHER.example:*": "xn--bcher-kva.example:*",
    "\uff11\uff12\uff17.0.0.1": "not ASCII",
    "ok.example\ud800": "not ASCII",
}


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_a_bad_entry_is_refused_with_the_entry_and_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(RuleError) as refusal:
        allow_entry(text)
    assert repr(text) in str(refusal.value)
    assert said in str(refusal.value).replace(repr(text), "")
    with pytest.raises(RuleError):
        deny_entry(text)


@pytest.mark.parametrize("text", ["a." * 150 + "example", "*." + "é" * 5000, "a b/" * 100, "*" * 264])
def test_an_entry_longer_than_any_is_refused_by_its_beginning(text: str) -> None:
    with pytest.raises(RuleError, match="longer than any host") as refusal:
        allow_entry(text)
    assert str(refusal.value).startswith(f"invalid entry {text[:60]!r}…")
    assert len(str(refusal.value)) < 200


def test_a_message_is_one_printable_line() -> None:
    for text in ("a\nINFO allowed", "a\x1b[2J", "a\u2028b", "a\u202eb", "a\x85b", "a:\x80", "\xfc:\x80"):
        with pytest.raises(RuleError) as refusal:
            allow_entry(text)
        assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "name",
    ["com", "example", "internal", "localhost", "co.uk", "jp", "kawasaki.jp", "ck", "xn--p1ai",
     "k12.ca.us", "compute-like.ck"],
)  # fmt: skip
@pytest.mark.parametrize("star", ["*.", "**."])
@pytest.mark.parametrize("port", ["", ":443", ":*"])
def test_a_wildcard_over_a_public_suffix_is_refused_even_as_shared(name: str, star: str, port: str) -> None:
    for shared in (False, True):
        with pytest.raises(RuleError, match="public suffix") as refusal:
            allow_entry(star + name + port, shared=shared)
        assert repr(star + name + port) in str(refusal.value)


@pytest.mark.parametrize("name", ["ok.example", "city.kawasaki.jp", "www.ck", "github.com", "example.co.uk"])
def test_a_wildcard_below_a_public_suffix_is_taken(name: str) -> None:
    assert covers(f"*.{name}", f"a.{name}:443")
    assert covers(f"**.{name}", f"{name}:443")


SHARED = ["github.io", "cloudfront.net", "googleapis.com", "s3.amazonaws.com", "compute.amazonaws.com"]


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("star", ["*.", "**."])
def test_a_wildcard_over_many_tenants_has_to_be_accepted_as_shared(name: str, star: str) -> None:
    with pytest.raises(RuleError, match=r"--allow-shared .*shared = true") as refusal:
        allow_entry(star + name)
    assert repr(star + name) in str(refusal.value)
    assert covers(allow_entry(star + name, shared=True), f"tenant.{name}:443")


@pytest.mark.parametrize("name", ["co.uk", "github.io", "kawasaki.jp"])
def test_a_public_suffix_itself_may_be_named_as_a_host(name: str) -> None:
    assert covers(name, f"{name}:443")
    assert not covers(name, f"tenant.{name}:443")


def test_a_wildcard_over_one_label_is_refused_whatever_the_list_says() -> None:
    for text in ("*.corp", "**.corp", "*.corp:443", "*.corp."):
        with pytest.raises(RuleError, match="public suffix"):
            parse_rule(text, lambda _: Suffix.NONE, shared=True)


def test_the_suffix_list_is_asked_for_wildcards_alone() -> None:
    asked: list[str] = []

    def suffix(name: str) -> Suffix:
        asked.append(name)
        return Suffix.NONE

    for text in ("ok.example", "127.0.0.1", "[::1]:80"):
        parse_rule(text, suffix)
    assert asked == []
    parse_rule("*.ok.example", suffix)
    assert "ok.example" in asked


def test_what_is_written_beside_an_entry_is_kept_with_it() -> None:
    rule = allow_entry("db.example:5432", private=True, client="build", reason="nightly")
    assert (rule.private, rule.client, rule.reason) == (True, "build", "nightly")
    for plain in (allow_entry("db.example"), Rule(Scope.EXACT, parse_authority("db.example:1").host, 1)):
        assert (plain.private, plain.client, plain.reason) == (False, None, "")
