"""A list of hosts as a sandbox reads it: the grammar of entries, what is loopback, which ports are meant."""

import pytest

from egress_proxy.core.rules import Suffix
from egress_proxy.sandbox.host_list import Endpoint, read_host_list


@pytest.mark.parametrize(
    ("entry", "endpoint"),
    [
        ("localhost:11434", Endpoint("localhost:11434", True, (11434,))),
        ("LocalHost", Endpoint("localhost", True, (80, 443))),
        ("127.0.0.1:80", Endpoint("127.0.0.1:80", True, (80,))),
        ("[::1]:80", Endpoint("[::1]:80", True, (80,))),
        ("[::ffff:127.0.0.1]:80", Endpoint("127.0.0.1:80", True, (80,))),
        ("localhost:*", Endpoint("localhost:*", True, None)),
        ("api.example", Endpoint("api.example", False, (80, 443))),
        ("*.api.example:443", Endpoint("*.api.example:443", False, (443,))),
        # Names below localhost are the resolver's to answer, and 127.0.0.2 is not what the word covers.
        ("db.localhost:80", Endpoint("db.localhost:80", False, (80,))),
        ("127.0.0.2:80", Endpoint("127.0.0.2:80", False, (80,))),
        ("0.0.0.0:80", Endpoint("0.0.0.0:80", False, (80,))),
    ],
)
def test_an_entry_is_a_place_and_its_ports(entry: str, endpoint: Endpoint) -> None:
    assert read_host_list([entry]) == (endpoint,)


@pytest.mark.parametrize(
    "bad", ["", " ", "a b", "https://a.example", "a.example/x", "a.example:0", "a.example:1-9", "127.1", "*",
            "*.com", "*.localhost", "**.localhost:1", "*.127.0.0.1",
            "a,b", "::1", 'a"b', "a)\n(allow default)", "a.example\n", "２.example"]
)  # fmt: skip
def test_a_bad_entry_is_named(bad: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid entry ") as refusal:
        read_host_list(["ok.example", bad])
    assert repr(bad) in str(refusal.value)


def test_order_is_kept_and_none_is_none() -> None:
    assert [endpoint.entry for endpoint in read_host_list(["b.example", "a.example"])] == [
        "b.example",
        "a.example",
    ]
    assert read_host_list([]) == ()


def test_the_public_suffix_list_is_asked_where_it_is_given() -> None:
    with pytest.raises(ValueError, match="public suffix"):
        read_host_list(["*.co.example"], lambda _: Suffix.ICANN)
    assert read_host_list(["*.co.example"])
