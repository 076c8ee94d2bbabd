"""A list of hosts as a sandbox reads it: the grammar of entries, what is loopback, which ports are meant."""

import pytest

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
        ("127.0.0.2:80", Endpoint("127.0.0.2:80", True, (80,))),
        ("127.255.255.254", Endpoint("127.255.255.254", True, (80, 443))),
        ("[::ffff:7f12:3456]:5", Endpoint("127.18.52.86:5", True, (5,))),
        ("[::FFFF:127.0.0.2]:*", Endpoint("127.0.0.2:*", True, None)),
        # Names below localhost are the resolver's to answer, other embeddings lead to strangers.
        ("db.localhost:80", Endpoint("db.localhost:80", False, (80,))),
        ("[::127.0.0.1]:80", Endpoint("[::7f00:1]:80", False, (80,))),
        ("[64:ff9b::127.0.0.1]:80", Endpoint("[64:ff9b::7f00:1]:80", False, (80,))),
        ("128.0.0.1:80", Endpoint("128.0.0.1:80", False, (80,))),
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


@pytest.mark.parametrize("entry", ["*.co.uk", "**.co.uk", "**.co.uk:8443", "*.kawasaki.jp:*", "**.github.io"])
def test_a_wildcard_over_a_public_suffix_is_refused_as_everywhere(entry: str) -> None:
    with pytest.raises(ValueError, match=r"public suffix|many tenants share") as refusal:
        read_host_list(["localhost:1", entry])
    assert repr(entry) in str(refusal.value)


def test_what_lies_below_a_public_suffix_is_a_name_like_others() -> None:
    assert [one.entry for one in read_host_list(["*.shop.co.uk", "me.github.io"])] == [
        "*.shop.co.uk",
        "me.github.io",
    ]
