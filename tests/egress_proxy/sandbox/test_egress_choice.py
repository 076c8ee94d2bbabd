"""Lists of hosts to one kind of egress: open, closed, our proxy, or no better than ports."""

from pathlib import Path

import pytest

from egress_proxy.sandbox.egress_choice import egress_of, through_proxy
from egress_proxy.sandbox.host_list import read_host_list
from egress_proxy.sandbox.spec import Egress, NoNetwork, OpenNetwork, PortsOnly, ThroughProxy
from tests.support.attach_peer import WELCOME, attach_peer


def test_no_list_is_open_and_an_empty_one_is_closed() -> None:
    assert egress_of(None, None) == OpenNetwork()
    assert egress_of((), None) == NoNetwork()


@pytest.mark.parametrize("entry", ["127.0.0.1:8899", "localhost:8899", "[::1]:8899"])
def test_the_port_of_the_proxy_means_the_proxy(tmp_path: Path, entry: str) -> None:
    with attach_peer(tmp_path, WELCOME) as path:
        assert egress_of(read_host_list([entry]), path) == ThroughProxy(path, 8899, None)
        assert through_proxy(path) == ThroughProxy(path, 8899, None)


@pytest.mark.parametrize(
    ("entries", "egress"),
    [
        (["127.0.0.1:8898"], PortsOnly(frozenset({8898}))),
        (["localhost"], PortsOnly(frozenset({80, 443}))),
        (["a.test:8899"], PortsOnly(frozenset({8899}))),
        (["[64:ff9b::127.0.0.1]:8899"], PortsOnly(frozenset({8899}))),
        (["localhost:8899", "a.test"], PortsOnly(frozenset({80, 443, 8899}))),
        (["a.test:*"], OpenNetwork()),
    ],
)
def test_any_other_list_comes_down_to_its_ports(tmp_path: Path, entries: list[str], egress: Egress) -> None:
    with attach_peer(tmp_path, WELCOME) as path:
        assert egress_of(read_host_list(entries), path) == egress


def test_without_a_living_proxy_the_entry_is_a_port() -> None:
    assert egress_of(read_host_list(["localhost:8899"]), "/nowhere") == PortsOnly(frozenset({8899}))
