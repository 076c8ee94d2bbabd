"""The client against the real server, and against whatever else may listen on its port."""

import asyncio
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from control_api.client import ControlClient, ControlRefusedError, ControlTokenWrong, ControlUnreachable
from control_api.models import AllowAnswer
from egress_proxy.core.seams import ReloadRefused
from tests.control_api.control_service import NOW, TOKEN, ControlService


@pytest.fixture
def client(control: ControlService) -> ControlClient:
    return ControlClient(control.port, TOKEN, timeout_s=5)


async def test_an_entry_alone_is_sent_alone(control: ControlService, client: ControlClient) -> None:
    answer = await asyncio.to_thread(client.allow, "A.example:443")
    assert answer == AllowAnswer(allowed="a.example", ports="443")
    assert answer.id is None


async def test_a_grant_is_made_listed_and_revoked(control: ControlService, client: ControlClient) -> None:
    made = await asyncio.to_thread(
        client.allow, "a.example", ttl_s=60, max_uses=2, max_bytes_out=3, client="ci", reason="for ä"
    )
    assert made.expires_at == NOW + 60
    (grant,) = await asyncio.to_thread(client.grants)
    assert (grant.id, grant.allowed, grant.client, grant.reason) == (made.id, "a.example", "ci", "for ä")
    assert (grant.uses_left, grant.bytes_left) == (2, 3)
    control.tunnels.resting = 5
    assert (await asyncio.to_thread(client.revoke, grant.id)).tunnels_closed == 5
    assert await asyncio.to_thread(client.grants) == ()


async def test_ten_thousand_grants_can_be_listed(control: ControlService, client: ControlClient) -> None:
    from egress_proxy.core.grants import Grants, Limits, make_grant
    from egress_proxy.core.rules import Suffix, parse_rule

    rule = parse_rule("a" * 63 + ".example", lambda _: Suffix.NONE, client="c" * 128, reason="r" * 200)
    every = {f"g-{n}": make_grant(f"g-{n}", rule, Limits(60.0, 1, 1), NOW, NOW) for n in range(10_000)}
    control.grants._grants = Grants.of(every)
    assert len(await asyncio.to_thread(client.grants)) == 10_000


async def test_status_and_reload_are_typed(control: ControlService, client: ControlClient) -> None:
    status = await asyncio.to_thread(client.status)
    assert (status.version, status.tunnels.open, status.rules.deny) == ("1.2.3", 7, 2)
    control.reload_outcome = 2
    assert (await asyncio.to_thread(client.reload)).tunnels_closed == 2


async def test_a_refusal_carries_status_code_and_detail(
    control: ControlService, client: ControlClient
) -> None:
    control.reload_outcome = ReloadRefused("line 1: no")
    refused = [
        (400, "bad-entry", lambda: client.allow("*.com")),
        (400, "bad-field", lambda: client.allow("a.example", ttl_s=float("-1"))),
        (400, "bad-json", lambda: client.allow("a.example", ttl_s=float("nan"))),
        (400, "bad-field", lambda: client.allow("a.example", reason="\ud800")),
        (400, "body-too-large", lambda: client.allow("a" * 5000)),
        (400, "unknown-client", lambda: client.allow("a.example", client="nobody")),
        (403, "blocked-by-address", lambda: client.allow("169.254.169.254")),
        (404, "unknown-grant", lambda: client.revoke("g-0")),
        (404, "unknown-grant", lambda: client.revoke("../status\r\nX: ä ?#")),
        (404, "not-found", lambda: client.revoke("")),
        (422, "reload-refused", lambda: client.reload()),
    ]
    for status, code, call in refused:
        with pytest.raises(ControlRefusedError) as caught:
            await asyncio.to_thread(call)
        assert (caught.value.status, caught.value.error) == (status, code)
        assert caught.value.detail
        assert str(caught.value) == f"{code}: {caught.value.detail}"


async def test_a_wrong_token_is_an_error_of_its_own(control: ControlService) -> None:
    with pytest.raises(ControlTokenWrong) as caught:
        await asyncio.to_thread(ControlClient(control.port, "wr0ng-T").grants)
    assert "wr0ng-T" not in str(caught.value)


@pytest.mark.parametrize(
    "token", ["", " ", "hush\n", " hush", "hush ", "hu\tsh", "hush\r\nX: 1", "hushä", "\ud800"]
)
def test_a_token_that_cannot_be_sent_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ControlTokenWrong) as caught:
        ControlClient(1, token)
    assert not token.strip() or token not in str(caught.value)


def test_the_token_is_hidden_from_repr() -> None:
    assert TOKEN not in repr(ControlClient(1, TOKEN))


def test_nobody_there_is_unreachable_in_one_line_that_names_the_port() -> None:
    import socket

    with socket.socket() as bound:  # bound and not listening: connections are refused
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(ControlUnreachable, match=rf"port {port} cannot be reached: Connection refused"):
            ControlClient(port, TOKEN).status()


def test_somebody_who_never_answers_is_not_waited_for() -> None:
    import socket

    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        pytest.raises(ControlUnreachable, match=r"within 0\.1 s"),
    ):
        ControlClient(deaf.getsockname()[1], TOKEN, timeout_s=0.1).status()


class Impostor(http.server.BaseHTTPRequestHandler):
    """Answers what the test wants, and counts."""

    status, headers_sent, body = 200, [("X", "1")], b""
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.status)
        for name, value in self.headers_sent:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def impostor() -> Iterator[tuple[int, type[Impostor]]]:
    class Answering(Impostor):
        asked: list[str] = []  # noqa: RUF012  one list per test

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port, Answering
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b'{"grants":[{"id":"x"}]}'),
        (200, b"\xff"),
        (404, b"<html>not found"),
        (401, b""),
        (500, b"Traceback"),
        (204, b""),
        (200, b"[" * 100_000),
    ],
)
def test_what_is_no_control_api_is_said_to_be_none(
    impostor: tuple[int, type[Impostor]], status: int, body: bytes
) -> None:
    port, answering = impostor
    answering.status, answering.body = status, body
    with pytest.raises(ControlUnreachable, match="is no control API"):
        ControlClient(port, TOKEN).grants()


def test_what_is_no_http_is_said_to_be_none() -> None:
    import socket

    def greet(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet, args=(listener,))
        thread.start()
        with pytest.raises(ControlUnreachable, match="does not speak HTTP"):
            ControlClient(listener.getsockname()[1], TOKEN).status()
        thread.join()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(impostor: tuple[int, type[Impostor]], status: int) -> None:
    port, answering = impostor
    answering.status = status
    answering.headers_sent = [("Location", f"http://127.0.0.1:{port}/stolen")]
    with pytest.raises(ControlUnreachable):
        ControlClient(port, TOKEN).grants()
    assert answering.asked == ["/grants"]


async def test_no_proxy_of_the_environment_is_used(
    control: ControlService, client: ControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await asyncio.to_thread(client.status)).version == "1.2.3"


def test_an_agent_host_that_imports_the_client_pays_for_no_web_server() -> None:
    code = (
        "import control_api.client, sys; "
        "print([m for m in ('aiohttp', 'asyncio', 'control_api.server', 'egress_proxy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
