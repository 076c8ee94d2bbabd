"""Sandboxes at the proxy: who is let in, what is theirs, and that all of it ends with them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from egress_proxy.core.attach import LINE_LIMIT
from egress_proxy.core.events import Decided, EndCause, Ended, Event, GrantEnded, SandboxChanged
from egress_proxy.core.grants import Limits
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy import attachments
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.vault.secret import Secret
from tests.conftest import Start
from tests.egress_proxy.proxy.brokers import broker
from tests.support.answers import fixed, held
from tests.support.byte_stream import End, connect, read_end, read_exactly, read_until_end
from tests.support.data_port import CONNECTIONS, TUNNELS, DataPort, entry
from tests.support.deadline import eventually
from tests.support.http import read_response, request_bytes
from tests.support.origins import EchoOrigin
from tests.support.proc_figures import open_descriptors
from tests.support.provider import Provider
from tests.support.sandbox_caller import SandboxCaller

RELAYS = ["loop", "epoll"]


@pytest.fixture
def path() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="eg-"))  # pytest's own paths may be too long for a socket's name
    yield folder / "attach.sock"
    shutil.rmtree(folder)


@pytest.fixture
def echo(start: Start) -> EchoOrigin:
    return start(EchoOrigin())


@pytest.fixture(params=RELAYS)
def port(request: pytest.FixtureRequest, start: Start, path: Path, echo: EchoOrigin) -> DataPort:
    return start(DataPort(allow=[echo.address], attach=path, relay=request.param))


@pytest.fixture
def call(start: Start, path: Path) -> Callable[..., SandboxCaller]:
    return lambda label="a test": start(SandboxCaller(str(path), label))


Call = Callable[..., SandboxCaller]


def figures(port: DataPort) -> tuple[int, int]:
    return port.call(lambda: open_descriptors(os.getpid())), port.registered_descriptors()


def refuses(port: int) -> bool:
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return True
    return False


def echoes(tunnel: socket.socket) -> bool:
    tunnel.sendall(b"x")
    return read_exactly(tunnel, 1) == b"x"


# In.


def test_whoever_comes_by_its_listener_is_the_sandbox(port: DataPort, call: Call, echo: EchoOrigin) -> None:
    one = call("npm test")
    assert one.welcome() == {"attach": 1, "client": "sandbox-1", "port": port.port}
    two = call().attach()
    assert two.client == "sandbox-2"
    tunnel = two.tunnel(echo.address)
    tunnel.sendall(b"HELLO")
    assert read_exactly(tunnel, 5) == b"HELLO"
    assert two.status("evil.example:443") == 403
    port.tunnel(echo.address)
    port.log.wait_for(Decided, 3)
    assert [(d.client.id, d.client.label) for d in port.log.of(Decided)] == [
        ("sandbox-2", "a test"),
        ("sandbox-2", "a test"),
        ("anonymous", ""),
    ]
    [attached] = port.log.of(SandboxChanged)
    assert (attached.client.id, attached.change, attached.pid) == ("sandbox-2", "attached", os.getpid())


def test_it_needs_no_token_where_others_do(port: DataPort, call: Call, echo: EchoOrigin) -> None:
    port.parts.in_force.clients = ClientTokens(Secret("shared"), {"build": Secret("own")})
    assert port.connect(echo.address)[1].status == 407
    one = call().attach()
    assert one.status(echo.address) == 200
    # A token that it shows, right or wrong, makes it nobody else.
    for token in ("own", "wrong"):
        assert one.connect(echo.address, ("Proxy-Authorization", f"Bearer {token}"))[1].status == 200
    assert {decided.client.id for decided in port.log.of(Decided)[1:]} == {"sandbox-1"}


def test_a_malformed_request_is_the_sandboxs_too(port: DataPort, call: Call) -> None:
    one = call().attach()
    sock = one.open()
    sock.sendall(b"CONNECT nonsense HTTP/1.1\r\n\r\n")
    assert read_response(sock).status == 400
    assert port.log.only(Decided).client.id == "sandbox-1"


@pytest.mark.parametrize("relay", RELAYS)
def test_both_inject_doors_know_it(start: Start, path: Path, call: Call, relay: str) -> None:
    provider = start(Provider())
    provider.otherwise(fixed(b"ok"))
    port = start(broker(provider, attach=path, relay=relay, clients=ClientTokens(Secret("shared"))))
    one = call().attach()
    absolute = one.open()
    absolute.sendall(request_bytes("GET", "http://127.0.0.1/a", [("Host", "127.0.0.1")]))
    assert read_response(absolute).status == 200
    inside = one.tunnel("127.0.0.1:80")
    inside.sendall(request_bytes("GET", "/b", [("Host", "127.0.0.1")]))
    assert read_response(inside).status == 200
    port.log.wait_for(Ended, 2)
    assert {decided.client.id for decided in port.log.of(Decided)} == {"sandbox-1"}
    [use] = one.end()["reached"]
    assert (use["host"], use["port"], use["connections"]) == ("127.0.0.1", 80, 2)
    assert use["bytes_in"] >= 4


def test_a_sandbox_has_the_tunnels_of_one_client(
    start: Start, path: Path, call: Call, echo: EchoOrigin
) -> None:
    start(DataPort(allow=[echo.address], attach=path, tunnels=replace(TUNNELS, per_client=2)))
    one, two = call().attach(), call().attach()
    for _ in range(2):
        one.tunnel(echo.address)
    assert one.status(echo.address) == 503
    two.tunnel(echo.address)


def test_its_listener_is_never_dialled_while_it_lives(start: Start, path: Path, call: Call) -> None:
    port = start(DataPort(allow=["127.0.0.1:*"], attach=path))
    one, two = call().attach(), call().attach()
    for listener in (one.port, two.port):
        _, head = port.connect(f"127.0.0.1:{listener}")
        assert (head.status, head.value("X-Proxy-Error")) == (403, "blocked-by-address")
    two.end()
    with socket.create_server(("127.0.0.1", two.port)):  # somebody else's by now
        port.tunnel(f"127.0.0.1:{two.port}")
    assert port.connect(f"127.0.0.1:{one.port}")[1].status == 403


def test_one_more_than_the_limit_is_told_so_and_a_place_that_is_free_again_is_taken(
    start: Start, path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "SANDBOX_LIMIT", 2)
    start(DataPort(attach=path))
    one, _ = call().attach(), call().welcome()
    late = call()
    assert "2 sandboxes are attached" in late.hello()["error"]
    assert read_end(late.sock) is End.EOF
    one.end()
    assert call().welcome()["client"] == "sandbox-3"


def test_far_more_than_the_limit_are_not_even_heard(
    start: Start, path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "SANDBOX_LIMIT", 1)
    start(DataPort(attach=path))
    call(), call()
    assert read_end(call().sock) is End.EOF


def test_a_service_that_stops_takes_no_sandbox(port: DataPort, call: Call) -> None:
    waiting = call()
    waiting.welcome()
    port.is_draining = True
    assert call().hello() == {"attach": 1, "error": "the proxy is stopping"}
    waiting.hand_out(socket.create_server(("127.0.0.1", 0)))
    assert read_end(waiting.sock) is End.EOF


def test_nobody_is_let_in_unrecorded(port: DataPort, call: Call) -> None:
    def refuse(event: Event) -> None:
        if isinstance(event, SandboxChanged):
            raise AuditUnavailable

    port.log.refusing = refuse
    one = call()
    one.welcome()
    one.hand_out(socket.create_server(("127.0.0.1", 0)))
    assert read_end(one.sock) is End.EOF
    assert port.log.all == []


# What is said wrong.


def udp() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    return made


def server() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def half_a_line(one: SandboxCaller) -> None:
    one.sock.sendall(b'{"attach":1')
    one.sock.shutdown(socket.SHUT_WR)


def two_messages(one: SandboxCaller) -> None:
    one.hand_out(server())
    with contextlib.suppress(OSError):
        one.sock.sendall(b"L")


def another_listener(one: SandboxCaller) -> None:
    one.hand_out(server())
    with contextlib.suppress(OSError):
        one.hand_out(server())


Wrong = Callable[[SandboxCaller], object]

INSTEAD_OF_HELLO: dict[str, Wrong] = {
    "nothing": lambda one: one.sock.shutdown(socket.SHUT_WR),
    "half a line": half_a_line,
    "no JSON": lambda one: one.sock.sendall(b"GET / HTTP/1.1\r\n\r\n"),
    "another version": lambda one: one.sock.sendall(b'{"attach":3,"label":""}\n'),
    "a line too long": lambda one: one.sock.sendall(b"x" * (LINE_LIMIT + 1)),
    "a descriptor with it": lambda one: one.hand_out(server(), octets=b'{"attach":1,"label":""}\n'),
    "a hand-out at once": lambda one: one.hand_out(server()),
    "a hand-out behind it": lambda one: one.sock.sendall(b'{"attach":1,"label":""}\nL'),
}
INSTEAD_OF_A_LISTENER: dict[str, Wrong] = {
    "nothing": lambda one: one.sock.shutdown(socket.SHUT_WR),
    "two descriptors": lambda one: one.hand_out(server(), server()),
    "many descriptors": lambda one: socket.send_fds(one.sock, [b"L"], [0] * 253),
    "no descriptor": lambda one: one.sock.sendall(b"L"),
    "another byte": lambda one: one.hand_out(server(), octets=b"K"),
    "more bytes": lambda one: one.hand_out(server(), octets=b"LL"),
    "a second hello": lambda one: one.sock.sendall(b'{"attach":1,"label":""}\n'),
    "udp": lambda one: one.hand_out(udp()),
    "a unix socket": lambda one: one.hand_out(socket.socket(socket.AF_UNIX)),
    "tcp that does not listen": lambda one: one.hand_out(socket.socket()),
    "every address": lambda one: one.hand_out(socket.create_server(("0.0.0.0", 0))),
    "a file": lambda one: socket.send_fds(one.sock, [b"L"], [0]),
}
AFTERWARDS: dict[str, Wrong] = {"bytes": two_messages, "a second listener": another_listener}


def ends_without_a_trace(port: DataPort, one: SandboxCaller, before: tuple[int, int]) -> None:
    """The proxy has closed it, nobody is attached, and every descriptor is back."""
    assert read_until_end(one.sock)[1] is not End.OPEN
    one.close()
    eventually(lambda: figures(port) == before, what="the descriptors to be closed")
    assert port.parts.sandboxes.living == {}
    assert set(port.own_listeners) == {port.own}


@pytest.mark.parametrize("wrong", INSTEAD_OF_HELLO.values(), ids=INSTEAD_OF_HELLO.keys())
def test_whatever_is_said_instead_of_hello_gets_nothing(port: DataPort, call: Call, wrong: Wrong) -> None:
    before = figures(port)
    one = call()
    wrong(one)
    ends_without_a_trace(port, one, before)
    assert port.log.all == []


@pytest.mark.parametrize("wrong", INSTEAD_OF_A_LISTENER.values(), ids=INSTEAD_OF_A_LISTENER.keys())
def test_whatever_comes_instead_of_one_listener_grants_nothing(
    port: DataPort, call: Call, wrong: Wrong
) -> None:
    before = figures(port)
    one = call()
    one.welcome()
    wrong(one)
    ends_without_a_trace(port, one, before)
    assert port.log.all == []


@pytest.mark.parametrize("wrong", AFTERWARDS.values(), ids=AFTERWARDS.keys())
def test_a_second_message_ends_the_sandbox(port: DataPort, call: Call, wrong: Wrong) -> None:
    before = figures(port)
    one = call()
    one.welcome()
    wrong(one)
    ends_without_a_trace(port, one, before)
    assert [event.change for event in port.log.of(SandboxChanged)] in ([], ["attached", "detached"])


def test_a_hello_that_is_wrong_is_told_why(port: DataPort, call: Call) -> None:
    one = call()
    one.sock.sendall(b'{"attach":3,"label":""}\n')
    assert one.read_line() == {"attach": 1, "error": "the attach version must be 1 or 2"}


@pytest.mark.parametrize("steps", [0, 1])
def test_whoever_is_silent_is_dropped_after_the_time_for_a_head(
    start: Start, path: Path, call: Call, steps: int
) -> None:
    port = start(DataPort(attach=path, connections=replace(CONNECTIONS, head_s=0.2)))
    before = figures(port)
    one = call()
    if steps:
        one.welcome()
    ends_without_a_trace(port, one, before)


def test_who_is_attached_may_be_silent_for_ever(start: Start, path: Path, call: Call) -> None:
    start(DataPort(attach=path, connections=replace(CONNECTIONS, head_s=0.1)))
    one, late = call().attach(), call()
    assert read_end(late.sock) is End.EOF  # whose time was the same, and began later
    assert one.status("evil.example:443") == 403


# Out.


def test_its_end_closes_all_that_is_its_and_nothing_else(
    port: DataPort, call: Call, echo: EchoOrigin
) -> None:
    staying = call().attach()
    kept = staying.tunnel(echo.address), port.tunnel(echo.address)
    assert all(map(echoes, kept))  # the origin has accepted them, too
    before = figures(port)
    going = call().attach()
    tunnel, waiting = going.tunnel(echo.address), going.open()
    tunnel.sendall(b"HELLO")
    assert read_exactly(tunnel, 5) == b"HELLO"
    report = going.end()
    assert read_end(tunnel) is not End.OPEN
    assert read_end(waiting) is not End.OPEN
    assert refuses(going.port)
    host, _, number = echo.address.rpartition(":")
    use = {"host": host, "port": int(number), "connections": 1, "bytes_out": 5, "bytes_in": 5}
    assert report == {"attach": 1, "reached": [use], "denied": [], "dropped": 0}
    ended = port.log.only(Ended)
    assert (ended.client.id, ended.cause) == ("sandbox-2", EndCause.SANDBOX_ENDED)
    going.close()
    eventually(lambda: figures(port) == before, what="the descriptors to be closed")
    assert all(map(echoes, kept))
    changes = [(event.client.id, event.change) for event in port.log.of(SandboxChanged)]
    assert changes == [("sandbox-1", "attached"), ("sandbox-2", "attached"), ("sandbox-2", "detached")]


def test_a_request_under_way_ends_with_it(start: Start, path: Path, call: Call) -> None:
    provider = start(Provider())
    provider.otherwise(held(threading.Event(), fixed(b"never")))
    port = start(broker(provider, attach=path))
    one = call().attach()
    sock = one.open()
    sock.sendall(request_bytes("GET", "http://127.0.0.1/a", [("Host", "127.0.0.1")]))
    provider.wait_for_requests(1)
    assert one.end()["reached"][0]["connections"] == 1
    assert read_end(sock) is not End.OPEN
    eventually(lambda: port.tasks() == 1)


@pytest.mark.parametrize("relay", RELAYS)
def test_a_dial_under_way_ends_with_it_and_gives_its_use_back(
    start: Start, path: Path, call: Call, relay: str
) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        target = f"127.0.0.1:{full.getsockname()[1]}"
        port = start(DataPort(attach=path, relay=relay))
        blockers = [socket.socket() for _ in range(4)]
        for sock in blockers:  # its queue takes no more, and a dial waits
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        grant = port.grant(target, max_uses=1)
        one = call().attach()
        sock = one.open()
        sock.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        eventually(lambda: port.grants.snapshot().by_id[grant].uses_left == 0)
        one.end()
        assert read_end(sock) is not End.OPEN
        eventually(lambda: port.grants.snapshot().by_id[grant].uses_left == 1)
        for sock in blockers:
            sock.close()


def test_denials_are_reported_with_their_reason(port: DataPort, call: Call) -> None:
    one = call().attach()
    for target in ("evil.example:443", "evil.example:443", "[2001:db8::1]:22"):
        assert one.status(target) == 403
    assert one.end()["denied"] == [
        {"host": "evil.example", "port": 443, "times": 2, "reason": "not_listed"},
        {"host": "[2001:db8::1]", "port": 22, "times": 1, "reason": "not_listed"},
    ]


def test_a_grant_for_it_serves_it_alone_and_goes_with_it(port: DataPort, call: Call) -> None:
    with EchoOrigin() as other:
        one, two = call().attach(), call().attach()
        scoped = port.call(lambda: port.grants.add(entry(other.address, client=one.client), Limits()))
        unscoped = port.grant("other.example")
        assert (one.status(other.address), two.status(other.address)) == (200, 403)
        assert port.connect(other.address)[1].status == 403
        one.end()
        assert set(port.grants.snapshot().by_id) == {unscoped}
        [ended] = port.log.of(GrantEnded)
        assert (ended.grant, ended.cause) == (scoped.id, "sandbox ended")


def test_a_report_that_nobody_reads_is_given_up_after_its_time(
    port: DataPort, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "REPORT_S", 0.2)
    before = figures(port)
    one = call().attach()
    one.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    ledger = port.parts.sandboxes.living[one.client]
    monkeypatch.setattr(attachments, "encode_report", lambda report: b"x" * (1 << 20))
    one.sock.shutdown(socket.SHUT_WR)
    eventually(lambda: figures(port)[1] == before[1], what="the proxy to close it")
    assert ledger.report().reached == ()
    assert len(read_until_end(one.sock)[0]) < 1 << 20


def test_a_long_report_arrives_whole(port: DataPort, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "encode_report", lambda report: b"x" * (1 << 20))
    one = call().attach()
    one.sock.shutdown(socket.SHUT_WR)
    received, end = read_until_end(one.sock)
    assert (len(received), end) == (1 << 20, End.EOF)


def test_the_end_of_the_service_is_the_end_of_all_with_their_reports(port: DataPort, call: Call) -> None:
    one, two, pending = call().attach(), call().attach(), call()
    assert one.status("evil.example:443") == 403
    pending.welcome()
    port.stop()
    assert one.read_line()["denied"][0]["host"] == "evil.example"
    assert two.read_line() == {"attach": 1, "reached": [], "denied": [], "dropped": 0}
    for caller in (one, two, pending):
        assert read_end(caller.sock) is End.EOF
    assert refuses(one.port)
    assert port.parts.sandboxes.living == {}


def test_an_idle_sandbox_costs_no_task(port: DataPort, call: Call) -> None:
    before = port.tasks()
    one, _ = call().attach(), call().welcome()
    assert port.tasks() == before
    one.end()
