"""Rules of core/address.py: the class of every special address, also where IPv4 hides in IPv6.

Which classes may be dialled is held by test_dial_policy.py.
"""

import ast
import inspect
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from egress_proxy.core import address as address_module
from egress_proxy.core.address import (
    AddressClass,
    address_text,
    classify,
    dialled_address,
    embedded_ipv4,
)

# Class -> addresses, the first and last of each block and what has fooled others.
EXPECTED: dict[AddressClass, str] = {
    AddressClass.PUBLIC: """
        1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
        168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0
        191.255.255.255 192.0.1.0 192.0.3.0 192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0
        198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0 223.255.255.255
        2000:: 2001:200:: 2001:4860:4860::8888 2001:db7:ffff::1 2001:db9:: 2003:: 2606:4700:4700::1111
        2a00:1450:4001:800::200e 3ffe:: 3fff:1000:: ::ffff:8.8.8.8 64:ff9b::8.8.8.8 64:ff9b::808:808""",
    AddressClass.METADATA: """
        169.254.169.254 169.254.170.2 169.254.170.23 169.254.0.23 169.254.42.42 100.100.100.200 100.96.0.96
        192.0.0.192 168.63.129.16 fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:42::42 fd00:c1::a9fe:a9fe
        fd00:a9fe:a9fe::1 fd00:100::100:200 fe80::a9fe:a9fe ::ffff:169.254.169.254 ::169.254.169.254
        ::ffff:0:169.254.169.254 64:ff9b::169.254.169.254 64:ff9b::a83f:8110 64:ff9b:1::a9fe:a9fe
        2002:a9fe:a9fe::1 2001:0:102:304::5601:5601""",
    AddressClass.LOOPBACK: """
        127.0.0.0 127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 ::127.0.0.1 ::ffff:0:127.0.0.1
        64:ff9b::7f00:1 64:ff9b:1::7f00:1 2002:7f00:1:: 2002:7fff:ffff:ffff::1 2001:0:102:304::80ff:fffe""",
    AddressClass.PRIVATE: """
        10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 fc00:: fd00::1
        fd00:ec2::253 fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ::ffff:10.0.0.1 ::10.0.0.1 64:ff9b::c0a8:1
        2002:a00:1:: 2001:0:102:304::f5ff:fffe""",
    AddressClass.LINK_LOCAL: """
        169.254.0.0 169.254.169.253 169.254.255.255 fe80:: fe80::1 febf:ffff::1 ::ffff:169.254.1.1
        64:ff9b::a9fe:101 2002:a9fe:101::""",
    AddressClass.CARRIER_NAT: """
        100.64.0.0 100.64.0.1 100.100.100.201 100.127.255.255 ::ffff:100.64.0.1 2002:6440:1::""",
    AddressClass.MULTICAST: """
        224.0.0.0 224.0.0.1 224.0.0.251 232.1.1.1 239.255.255.255 ff00:: ff02::1 ff0e::1 ff3e::8000:1
        ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ::ffff:224.0.0.1 64:ff9b::e000:1""",
    AddressClass.UNSPECIFIED: "0.0.0.0 :: ::ffff:0.0.0.0 64:ff9b:: 2002:: ::ffff:0:0.0.0.0",
    AddressClass.BROADCAST: "255.255.255.255 ::ffff:255.255.255.255 64:ff9b::ffff:ffff 2002:ffff:ffff::",
    AddressClass.RESERVED: """
        0.0.0.1 0.255.255.255 192.0.0.0 192.0.0.8 192.0.0.9 192.0.0.170 192.0.0.255 192.88.99.0 192.88.99.1
        192.88.99.255 240.0.0.0 247.1.2.3 255.255.255.254 64:ff9b:0:1:: 64:ff9b:2:: 100:: 100::1
        100:0:0:1::1 2001:1::1 2001:3::1 2001:4:112::1 2001:10::1 2001:20::1 2001:30::1 2001:1ff:ffff::1
        5f00:: 5f00::1 200:: 400:: 1000:: 4000:: 8000:: e000:: f800:: fe00:: fe7f::1
        ::2 ::ffff:240.0.0.1 64:ff9b:1::1""",
    AddressClass.DOCUMENTATION: """
        192.0.2.0 192.0.2.255 198.51.100.1 203.0.113.0 203.0.113.255 2001:db8:: 2001:db8:ffff::1 3fff::
        3fff:fff:ffff::1 ::ffff:192.0.2.1""",
    AddressClass.BENCHMARKING: "198.18.0.0 198.19.255.255 2001:2:: 2001:2:0:ffff::1 ::ffff:198.18.0.1",
    AddressClass.SITE_LOCAL: "fec0:: fec0::1 feff:ffff::1",
    AddressClass.EMBEDDED_IPV4: """
        ::8.8.8.8 ::ffff:0:8.8.8.8 64:ff9b:1::808:808 2002:808:808::1 2001:0:102:304:0:0:f7f7:f7f7""",
}  # fmt: skip
TABLE = [(text, kind) for kind, texts in EXPECTED.items() for text in texts.split()]


@pytest.mark.parametrize(("text", "kind"), TABLE)
def test_the_class_of_an_address(text: str, kind: AddressClass) -> None:
    assert classify(ip_address(text)) is kind


def test_a_class_is_a_stable_word_for_messages() -> None:
    assert [kind.value for kind in AddressClass] == [kind.name.lower() for kind in AddressClass]


def test_the_table_above_names_every_class() -> None:
    assert EXPECTED.keys() == set(AddressClass)
    assert len({text for text, _ in TABLE}) == len(TABLE) >= 80


# Where `ipaddress.is_global` says yes on some Python (also after CVE-2024-4032) and must not be believed.
WRONGLY_GLOBAL = """
    224.0.0.1 239.255.255.255 ff02::1 ff0e::1 ::127.0.0.1 64:ff9b::7f00:1 fec0::1 3fff::1 5f00::1
    168.63.129.16 192.0.0.8 64:ff9b:1::1 2002:7f00:1:: 192.88.99.1"""


@pytest.mark.parametrize("text", WRONGLY_GLOBAL.split())
def test_what_the_standard_library_calls_global_is_not_thereby_public(text: str) -> None:
    assert classify(ip_address(text)) is not AddressClass.PUBLIC


def test_classes_do_not_depend_on_the_python_version() -> None:
    """Each `is_…` of ipaddress has changed its answer in some release; containment in a network has not."""
    tree = ast.parse(inspect.getsource(address_module))
    asked = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {name for name in asked if name.startswith(("is_", "teredo", "sixtofour"))} == set()


def test_no_line_of_the_table_is_hidden_by_a_wider_one_above_it() -> None:
    seen = [network for network, _ in address_module._NETWORKS]
    hidden = [
        (wide, narrow)
        for place, narrow in enumerate(seen)
        for wide in seen[:place]
        if wide.prefixlen <= narrow.prefixlen and narrow.network_address in wide
    ]
    assert hidden == []


def test_every_line_of_the_tables_names_its_source() -> None:
    assert all(source for _, _, source in address_module._TABLE)
    assert all("RFC" in source for *_, source in address_module._EMBEDDINGS)


HIDDEN = {
    "::ffff:192.0.2.1": True,  # mapped
    "64:ff9b::192.0.2.1": True,  # NAT64
    "64:ff9b:1::192.0.2.1": False,  # NAT64 of a local network
    "::192.0.2.1": False,  # compatible
    "::ffff:0:192.0.2.1": False,  # translated
    "2002:c000:201::": False,  # 6to4
    "2002:c000:201:1:2:3:4:5": False,
    "2001:0:808:808:8000:1:3fff:fdfe": False,  # Teredo, the client's bits inverted
}


@pytest.mark.parametrize(("text", "reaches"), HIDDEN.items())
def test_ipv4_is_found_wherever_it_hides(text: str, reaches: bool) -> None:
    assert embedded_ipv4(ip_address(text)) == (IPv4Address("192.0.2.1"), reaches)


@pytest.mark.parametrize("text", ["192.0.2.1", "::", "::1", "2001:db8::c000:201", "fe80::c000:201", "2003::"])
def test_other_addresses_hide_nothing(text: str) -> None:
    assert embedded_ipv4(ip_address(text)) is None


def test_a_hidden_address_is_judged_whatever_hides_it() -> None:
    inner = IPv4Address("10.1.2.3")
    forms = [f"::ffff:{inner}", f"64:ff9b::{inner}", f"64:ff9b:1::{inner}", f"::{inner}",
             f"::ffff:0:{inner}", "2002:a01:203:9::9",
             str(IPv6Address((0x20010000 << 96) | (int(inner) ^ 0xFFFFFFFF)))]  # fmt: skip
    assert {classify(ip_address(form)) for form in forms} == {classify(inner)} == {AddressClass.PRIVATE}


@pytest.mark.parametrize("text", ["0.0.0.1", "::1", "::ffff:192.0.2.1", "64:ff9b::c000:201"])
def test_an_address_is_printed_as_python_does_however_often(text: str) -> None:
    address = ip_address(text)
    assert [address_text(address), address_text(address)] == [str(address)] * 2


def test_only_mapped_addresses_are_dialled_as_ipv4() -> None:
    assert dialled_address(ip_address("::ffff:192.0.2.1")) == IPv4Address("192.0.2.1")
    for text in ("192.0.2.1", "64:ff9b::192.0.2.1", "::192.0.2.1", "2001:db8::1"):
        assert dialled_address(ip_address(text)) == ip_address(text)
