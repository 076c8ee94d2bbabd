"""Who attaches from another user or another network namespace: turned away the one, kept apart the other.

What is said on the attach socket is in test_attachments.py.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from egress_proxy.core.events import SandboxChanged
from egress_proxy.core.host import parse_authority
from egress_proxy.sandbox.attach_client import Attachment
from egress_proxy.sandbox.spec import SandboxUnavailable
from tests.conftest import Start
from tests.support.byte_stream import End, read_until_end
from tests.support.data_port import DataPort
from tests.support.netns import NetworkNamespace
from tests.support.origins import EchoOrigin
from tests.support.sandbox_caller import SandboxCaller

Call = Callable[..., SandboxCaller]


@pytest.fixture
def path() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="eg-"))  # pytest's own paths may be too long for a socket's name
    yield folder / "attach.sock"
    shutil.rmtree(folder)


@pytest.fixture
def echo(start: Start) -> EchoOrigin:
    return start(EchoOrigin())


@pytest.fixture
def port(start: Start, path: Path, echo: EchoOrigin) -> DataPort:
    return start(DataPort(allow=[echo.address], attach=path))


@pytest.fixture
def call(start: Start, path: Path) -> Call:
    return lambda label="a test": start(SandboxCaller(str(path), label))


AS_NOBODY = """
import socket, sys
with socket.socket(socket.AF_UNIX) as sock:
    sock.settimeout(5)
    sock.connect(sys.argv[1])
    try:
        sock.sendall(b'{"attach":1,"label":"x"}\\n')
    except OSError:
        pass
    print(sock.recv(100).decode(), end="")
"""
OF_ITS_OWN = '{"attach":1,"error":"it takes those of its own user alone"}\n'


def test_another_user_is_turned_away_even_where_the_mode_lets_him_in(
    port: DataPort, path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        path.parent.chmod(0o755)
        path.chmod(0o666)
        argv = ["/usr/bin/python3", "-I", "-c", AS_NOBODY, str(path)]
        done = subprocess.run(
            argv, user=65534, capture_output=True, text=True, timeout=30, check=True, cwd="/"
        )
        assert done.stdout == OF_ITS_OWN
        user = 65534
    else:
        user = ours = os.geteuid()
        monkeypatch.setattr("os.geteuid", lambda: ours + 1)  # as the service of another user sees us
        assert read_until_end(call().sock) == (OF_ITS_OWN.encode(), End.EOF)
        monkeypatch.undo()
    [turned_away] = port.log.of(SandboxChanged)
    assert (turned_away.client.id, turned_away.change) == ("anonymous", f"refused: of user {user}")
    call().attach()


def test_the_caller_of_another_user_is_told_why_and_the_log_hears_of_it_once_a_minute(
    port: DataPort, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: ours + 1)
    for _ in range(5):
        with pytest.raises(SandboxUnavailable, match="takes no sandbox: it takes those of its own"):
            Attachment(str(path))
    assert [event.change for event in port.log.of(SandboxChanged)] == [f"refused: of user {ours}"]


def test_what_listens_in_another_network_namespace_leaves_that_address_here_in_reach(
    port: DataPort, call: Call, echo: EchoOrigin, net: NetworkNamespace
) -> None:
    """A model server on the host's loopback stays reachable, whichever port a sandbox listens on inside."""
    own = set(port.own_listeners)
    one = call()
    with net.entered():
        one.attach(echo.port)
    assert set(port.own_listeners) == own
    port.tunnel(echo.address).close()
    one.end()
    assert set(port.own_listeners) == own


def test_what_listens_in_our_own_network_namespace_is_never_dialled_while_it_is_there(
    port: DataPort, call: Call
) -> None:
    before = dict(port.own_listeners)
    one, two = call().attach(), call().attach()
    there = {parse_authority(f"127.0.0.1:{each.port}"): 1 for each in (one, two)}
    assert port.own_listeners == {**before, **there}
    for each in (one, two):
        each.end()
    assert port.own_listeners == before
