"""Addresses in settings: what may be listened on, and which DNS server may be asked."""

import pytest

from egress_proxy.cli.endpoints import parse_bind, parse_server
from egress_proxy.core.host import HostError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("127.0.0.1:8899", "127.0.0.1:8899"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("localhost:1", "127.0.0.1:1"),
        ("[::1]:5", "[::1]:5"),
        ("0.0.0.0:80", "0.0.0.0:80"),
    ],
)
def test_a_listening_address_is_read(text: str, shown: str) -> None:
    assert str(parse_bind(text)) == shown


@pytest.mark.parametrize(
    "text",
    [
        *[
            "",
            "8899",
            ":8899",
            "127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:65536",
            "127.0.0.1:00",
            "127.1:1",
            "::1:1",
        ],
        *[
            "host.example:1",
            "[::1%lo]:1",
            "127.0.0.1: 1",
            "127.0.0.1:+1",
            "127.0.0.1:٣",
            "http://127.0.0.1:1",
        ],
    ],
)
def test_a_bad_listening_address_is_refused(text: str) -> None:
    with pytest.raises(HostError):
        parse_bind(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("192.0.2.53", "192.0.2.53:53"),
        ("192.0.2.53:5353", "192.0.2.53:5353"),
        ("[2001:db8::53]", "[2001:db8::53]:53"),
        ("[2001:db8::53]:5353", "[2001:db8::53]:5353"),
    ],
)
def test_a_dns_server_is_read(text: str, shown: str) -> None:
    assert str(parse_server(text)) == shown


@pytest.mark.parametrize(
    "text", ["", "dns.example", "192.0.2.53:0", "192.0.2.53:", "2001:db8::53", "tls://192.0.2.1"]
)
def test_a_bad_dns_server_is_refused(text: str) -> None:
    with pytest.raises(HostError):
        parse_server(text)


def test_a_listener_is_a_target_once_its_port_is_known() -> None:
    assert parse_bind("127.0.0.1:0").target is None
    assert str(parse_bind("127.0.0.1:5").target) == "127.0.0.1:5"
