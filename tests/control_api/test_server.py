"""The server as a whole: where it listens, how many it serves at once, how soon it is gone, what it leaks."""

import asyncio
import contextlib
import logging
import socket
import time
from pathlib import Path

import aiohttp
import pytest

from control_api import server
from control_api.server import ControlServer
from tests.control_api.control_service import BEARER, JSON, TOKEN, ControlService, read_answer
from tests.support.http import request_bytes

STOP_S = 0.5


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="listeners are listed by Linux's /proc")
async def test_the_kernel_lists_one_listener_and_it_is_on_loopback(control: ControlService) -> None:
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        if Path(table).exists()
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{control.port:04X}")
    ]
    assert listening == [f"0100007F:{control.port:04X}"]


async def test_an_address_of_this_machine_that_is_not_loopback_is_not_served(control: ControlService) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: asks which address would be used
        address = probe.getsockname()[0]
    with pytest.raises(OSError, match=r"\[Errno"):
        await asyncio.open_connection(address, control.port)


async def test_a_port_that_is_taken_is_an_error_and_stopping_is_still_safe(control: ControlService) -> None:
    second = ControlServer(control.deps())
    with pytest.raises(OSError, match="address already in use"):
        await second.start(control.port)
    await second.stop()


async def test_a_given_port_is_the_port(control: ControlService) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    second = ControlServer(control.deps())
    assert await second.start(port) == port
    await second.stop()


async def stops_in_time(control: ControlService) -> None:
    started = time.monotonic()
    await control.server.stop()
    assert time.monotonic() - started < STOP_S
    with pytest.raises(OSError, match=r"Connect call failed|\[Errno"):
        await asyncio.open_connection("127.0.0.1", control.port)


async def test_idle_connections_do_not_delay_the_end(
    control: ControlService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_GRACE_S", 30)  # grace is for calls, not for idle connections
    async with contextlib.AsyncExitStack() as stack:
        readers = []
        for number in range(100):
            reader, writer = await stack.enter_async_context(control.connect())
            readers.append(reader)
            if number % 2:
                writer.write(request_bytes("GET", "/status", [control.host, BEARER]))
                assert (await read_answer(reader)).status == 200
        await stops_in_time(control)
        assert [await reader.read() for reader in readers] == [b""] * 100


@pytest.mark.parametrize("kind", ["slow head", "slow body", "slow call", "wrong token"])
async def test_calls_that_take_long_do_not_delay_the_end(control: ControlService, kind: str) -> None:
    control.reload_takes_s = 30
    headers = [control.host, BEARER, JSON]
    wrong = [control.host, ("Authorization", "Bearer wrong")]
    begun = {
        "slow head": request_bytes("GET", "/status", headers)[:-2],
        "slow body": request_bytes("POST", "/allow", [*headers, ("Content-Length", "9")]),
        "slow call": request_bytes("POST", "/reload", headers),
        "wrong token": request_bytes("GET", "/status", wrong) * 9,
    }
    async with control.connect(begun[kind]) as (reader, _):
        await asyncio.sleep(0.05)  # until the server is inside the call
        await stops_in_time(control)
        await reader.read()
    assert control.entries() == []


async def test_a_call_that_is_nearly_done_is_answered_before_the_end(control: ControlService) -> None:
    control.reload_takes_s = 0.1
    async with control.connect(request_bytes("POST", "/reload", [control.host, BEARER])) as (reader, _):
        await asyncio.sleep(0.02)
        await stops_in_time(control)
        assert (await read_answer(reader)).status == 200


async def test_a_thousand_grants_at_once_are_all_made(control: ControlService) -> None:
    url = f"http://127.0.0.1:{control.port}/allow"

    async def grant(session: aiohttp.ClientSession, number: int) -> str:
        body = {"host": f"h{number}.example", "max_uses": 1}
        async with session.post(url, json=body) as response:
            assert response.status == 200
            return str((await response.json())["id"])

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=dict([BEARER]), connector=connector) as session:
        ids = await asyncio.gather(*(grant(session, number) for number in range(1000)))
    assert len(set(ids)) == 1000
    assert {f"h{number}.example" for number in range(1000)} == set(control.entries())
    assert len(control.events) == 1000


async def test_the_same_grant_a_hundred_times_at_once_is_one(control: ControlService) -> None:
    answers = await asyncio.gather(*(control.allow(host="a.example") for _ in range(100)))
    assert {answer.status for answer in answers} == {200}
    assert control.entries() == ["a.example"]


async def test_the_token_is_in_no_log_event_or_answer_whatever_happens(
    control: ControlService, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    control.reload_outcome = RuntimeError(TOKEN)
    raw = request_bytes("GET", "/status", [control.host, BEARER])
    asked = [
        raw,
        raw.replace(b"/status", b"/status?token=" + TOKEN.encode()),
        raw.replace(b"HTTP/1.1", b"HTTP/x.1"),
        raw[:-2] + b"X: " + b"a" * 9000 + b"\r\n\r\n",
        raw[:-2] + b"Broken\r\n\r\n",
        raw.replace(TOKEN.encode(), TOKEN.encode() + b"x"),
        request_bytes("POST", "/reload", [control.host, BEARER]),
        request_bytes("POST", "/allow", [control.host, BEARER, JSON], b'{"host":5}'),
    ]
    answers = [await control.send(request) for request in asked]
    assert [answer.status for answer in answers] == [200, 200, 400, 400, 400, 401, 500, 400]
    seen = [answer.head.raw + answer.body for answer in answers]
    everything = repr((seen, control.events, control.server, vars(control.server))) + caplog.text
    assert TOKEN not in everything + "".join(capfd.readouterr())
    assert not [record for record in caplog.records if record.name.startswith("aiohttp")]


async def test_no_answer_names_the_software_or_a_version(control: ControlService) -> None:
    for raw in (b"\x16\x03\r\n\r\n", request_bytes("GET", "/healthz", [control.host])):
        answer = await control.send(raw)
        assert answer.value("Server") == "egress-control"
        assert b"aiohttp" not in answer.head.raw + answer.body
        assert b"Python" not in answer.head.raw + answer.body


async def test_refusals_keep_the_connection_and_say_no_store(control: ControlService) -> None:
    async with control.connect() as (reader, writer):
        for path, status in (("/nothing", 404), ("/status", 200), ("/allow", 405)):
            writer.write(request_bytes("GET", path, [control.host, BEARER]))
            answer = await read_answer(reader)
            assert answer.status == status
            assert answer.value("Cache-Control") == "no-store"
            assert answer.value("X-Content-Type-Options") == "nosniff"
