"""Targets: what is not canonical is refused or made canonical, and nothing else can happen.

Tables of cases are in ../egress_proxy/core/test_host.py.
"""

import re
from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.host import (
    Host,
    HostError,
    Name,
    Target,
    host_text,
    parse_authority,
    parse_host,
    parse_port,
)
from tests.properties.strategies import hosts, ipv6, target_texts, targets

# The contract's words as one expression; no literal is long enough for the lengths to matter.
CANONICAL = re.compile(r"([a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:]+(\.[0-9.]+)?\]):[1-9][0-9]{0,4}")


@given(targets)
def test_printing_and_reading_a_target_is_the_identity(target: Target) -> None:
    assert parse_authority(str(target)) == target


@given(hosts)
def test_printing_and_reading_a_host_is_the_identity(host: Host) -> None:
    assert parse_host(host_text(host)) == host


@given(targets, st.booleans())
def test_case_and_final_dot_change_nothing(target: Target, upper: bool) -> None:
    text = host_text(target.host)
    spelled = (text.upper() if upper else text) + ("." if isinstance(target.host, Name) else "")
    assert parse_authority(f"{spelled}:{target.port}") == target


@given(ipv6, st.integers(1, 65535))
def test_every_spelling_of_an_ipv6_address_is_the_same_target(address: IPv6Address, port: int) -> None:
    spelled = {
        parse_authority(f"[{text}]:{port}") for text in (str(address), address.exploded, str(address).upper())
    }
    spelled.add(parse_authority(f"{address.exploded}:{port}"))
    assert len(spelled) == 1


@given(target_texts)
def test_any_text_is_a_canonical_target_or_refused(text: str) -> None:
    try:
        target = parse_authority(text)
    except HostError:
        return
    canonical = str(target)
    assert CANONICAL.fullmatch(canonical)
    assert parse_authority(canonical) == target
    assert text.isascii()
    assert canonical.isascii()
    if isinstance(target.host, Name):
        assert text.lower().rpartition(":")[0].removesuffix(".") == target.host.text
    assert text.rpartition(":")[2] == str(target.port)


@given(target_texts)
def test_a_name_is_nothing_that_a_resolver_reads_as_an_address(text: str) -> None:
    try:
        host = parse_host(text)
    except HostError:
        return
    if not isinstance(host, Name):
        assert (
            host == (IPv6Address(text[1:-1]) if text[0] == "[" else IPv4Address(text))
            or "ffff" in text.lower()
        )
        return
    labels = host.text.split(".")
    assert len(host.text) <= 253
    assert all(0 < len(label) <= 63 for label in labels)
    assert not re.fullmatch(r"[0-9]+|0[xX][0-9a-fA-F]*", labels[-1])


@given(st.text(max_size=8) | st.integers(-10, 70000).map(str))
def test_a_port_is_read_back_or_refused(text: str) -> None:
    try:
        port = parse_port(text)
    except HostError:
        assert text not in {str(valid) for valid in (1, 80, 443, 65535)}
        return
    assert str(port) == text
    assert 1 <= port <= 65535
