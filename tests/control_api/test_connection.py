"""Connections: what is no HTTP, what comes too slowly, what raises, and one too many."""

import asyncio
import contextlib
import logging

import pytest

from control_api import connection, server
from control_api.connection import fault_place
from egress_proxy.core.events import ControlRefused, Faulted
from egress_proxy.core.seams import AuditUnavailable
from tests.control_api.control_service import BEARER, JSON, TOKEN, ControlService, error_of, read_answer
from tests.support.http import request_bytes

NOT_HTTP = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"\x05\x01\x00\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /healthz\r\n\r\n",
    b"GET /healthz HTTP/9.9\r\n\r\n",
    b"GET /healthz SPDY/1.1\r\n\r\n",
    b"GET  /healthz HTTP/1.1\r\n\r\n",
    b"GET /\x1b[2J HTTP/1.1\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: \xff\r\n\r\n",
    b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"a" * 9000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(200)) + b"\r\n",
    b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    b"GET / HTTP/1.1\r\n folded\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n",
    b"POST /allow HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    b"POST /allow HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /allow HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /allow HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"G\xc3\x84T / HTTP/1.1\r\n\r\n",
    b"A" * 300 + b" / HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize("raw", NOT_HTTP, ids=lambda raw: repr(raw[:30]))
async def test_what_is_not_well_formed_is_400_in_json_and_quotes_nothing(
    control: ControlService, raw: bytes
) -> None:
    response = await control.send(raw)
    assert error_of(response) in {(400, "bad-request"), (403, "host-not-ours")}
    assert response.value("Server") == "egress-control"
    assert [type(event) for event in control.events] == [ControlRefused]


@pytest.mark.parametrize("host", ["evil.test:443", None])
async def test_connect_is_refused_like_any_path_that_is_none(
    control: ControlService, host: str | None
) -> None:
    headers = [control.host if host is None else ("Host", host), BEARER]
    response = await control.request("CONNECT", "evil.test:443", headers)
    assert error_of(response) == ((404, "not-found") if host is None else (403, "host-not-ours"))


@pytest.mark.parametrize(
    "target", ["http://evil.test/status", "http://127.0.0.1/status", "*", "status", "/status#x"]
)
async def test_a_target_that_is_no_plain_path_is_found_nowhere(control: ControlService, target: str) -> None:
    response = await control.request("GET", target, [control.host, BEARER])
    assert response.status in (400, 404)


async def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.1)
    async with ControlService() as control:
        for begun in (b"", b"GET /hea", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"):
            async with control.connect(begun) as (reader, _):
                assert await reader.read() == b""


async def test_an_idle_connection_is_kept_for_the_next_call_and_then_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.2)
    async with ControlService() as control, control.connect() as (reader, writer):
        for _ in range(2):
            writer.write(request_bytes("GET", "/status", [control.host, BEARER]))
            assert (await read_answer(reader)).status == 200
        assert await reader.read() == b""


async def test_calls_sent_in_one_go_are_answered_in_order(control: ControlService) -> None:
    asked = [
        request_bytes("POST", "/allow", [control.host, BEARER, JSON], b'{"host":"a.example"}'),
        request_bytes("GET", "/healthz", [control.host]),
        request_bytes("GET", "/nothing", [control.host, BEARER]),
    ]
    async with control.connect(b"".join(asked)) as (reader, _):
        assert [(await read_answer(reader)).status for _ in asked] == [200, 200, 404]


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
async def test_a_fault_of_ours_is_500_recorded_once_and_shown_to_nobody(
    control: ControlService, accept: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    control.reload_outcome = KeyError(f"with {TOKEN} inside")
    response = await control.request("POST", "/reload", [control.host, BEARER, ("Accept", accept)])
    assert error_of(response) == (500, "internal-error")
    assert b"KeyError" not in response.body
    assert b"Traceback" not in response.body
    (event,) = control.events
    assert isinstance(event, Faulted)
    assert event.error == "KeyError"
    assert event.where.startswith("control_service.py:")
    assert event.request_id in response.json()["detail"]
    assert TOKEN not in repr(event)
    assert not [record for record in caplog.records if record.name != "asyncio"]
    assert TOKEN not in caplog.text
    assert capfd.readouterr() == ("", "")


async def test_a_call_that_runs_into_a_timeout_of_its_own_is_a_fault_too(control: ControlService) -> None:
    control.reload_outcome = TimeoutError()
    assert error_of(await control.call("POST", "/reload")) == (500, "internal-error")
    (event,) = control.events
    assert isinstance(event, Faulted)
    assert event.error == "TimeoutError"


async def test_the_service_goes_on_after_a_fault(control: ControlService) -> None:
    control.reload_outcome = ZeroDivisionError()
    numbers = {(await control.call("POST", "/reload")).json()["detail"] for _ in range(3)}
    assert len(numbers) == 3
    assert (await control.allow(host="a.example")).status == 200


async def test_after_what_could_not_be_read_or_served_the_connection_is_closed(
    control: ControlService,
) -> None:
    control.reload_outcome = ZeroDivisionError()
    for raw in (b"\x16\x03\r\n\r\n", request_bytes("POST", "/reload", [control.host, BEARER])):
        async with control.connect(raw) as (reader, _):
            assert (await read_answer(reader)).status in (400, 500)
            assert await reader.read() == b""


async def test_a_fault_that_cannot_even_be_answered_is_recorded_and_closes_the_connection(
    control: ControlService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(server, "refusal_answer", lambda refusal: 1 / 0)
        async with control.connect(request_bytes("GET", "/nothing", [control.host, BEARER])) as (reader, _):
            assert await reader.read() == b""
    assert [type(event) for event in control.events] == [ControlRefused, Faulted, Faulted]
    assert not caplog.records
    assert (await control.call("GET", "/status")).status == 200


async def test_an_audit_log_that_breaks_its_promise_hangs_nobody(control: ControlService) -> None:
    control.audit_fault = RuntimeError()
    async with control.connect(request_bytes("GET", "/nothing", [control.host, BEARER])) as (reader, _):
        assert await reader.read() == b""


async def test_a_fault_of_the_audit_log_itself_ends_the_connection_and_nothing_else(
    control: ControlService,
) -> None:
    control.audit_fault = AuditUnavailable()
    control.reload_outcome = ValueError()
    assert error_of(await control.call("POST", "/reload")) == (500, "internal-error")
    assert error_of(await control.call("GET", "/nothing")) == (404, "not-found")


async def test_a_connection_beyond_the_cap_is_told_so_where_all_others_have_shown_the_token(
    control: ControlService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTION_LIMIT", 2)
    call = request_bytes("GET", "/status", [control.host, BEARER])
    async with control.connect(call) as (reader, writer), control.connect(call) as (other, _):
        assert [(await read_answer(one)).status for one in (reader, other)] == [200, 200]
        async with control.connect() as (refused, _):
            response = await read_answer(refused)
            assert await refused.read() == b""
        assert error_of(response) == (503, "too-many-connections")
        assert response.value("Retry-After") == "1"
        assert response.value("X-Content-Type-Options") == "nosniff"
        writer.write(request_bytes("GET", "/healthz", [control.host]))
        assert (await read_answer(reader)).status == 200
        assert [event.status for event in control.refusals] == [503]
    async with asyncio.timeout(5):
        while (await control.call("GET", "/status")).status != 200:
            await asyncio.sleep(0.01)


async def test_a_caller_whose_token_is_right_keeps_its_place_while_it_waits_for_the_wrong_ones_of_others(
    control: ControlService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTION_LIMIT", 8)
    wrong = request_bytes("GET", "/status", [control.host, ("Authorization", "Bearer wrong")])
    for _ in range(3):
        assert (await control.send(wrong)).status == 401
    call = request_bytes("GET", "/status", [control.host, BEARER])
    async with contextlib.AsyncExitStack() as stack:
        reader, _ = await stack.enter_async_context(control.connect(call))
        for _ in range(40):
            await stack.enter_async_context(control.connect(b""))
        assert (await read_answer(reader)).status == 200


def test_fewer_are_accepted_in_one_go_than_there_are_places() -> None:
    assert server.ACCEPT_BATCH < server.CONNECTION_LIMIT / 4


@pytest.mark.parametrize(
    "said",
    [b"", b"GET /status HT", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"],
    ids=["nothing", "half a head", "no token"],
)
async def test_callers_without_the_token_cannot_shut_out_one_who_has_it(
    control: ControlService, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """Any local process could take all places, and then no grant could be revoked."""
    monkeypatch.setattr(server, "CONNECTION_LIMIT", 8)
    call = request_bytes("GET", "/status", [control.host, BEARER])
    async with contextlib.AsyncExitStack() as stack:
        reader, writer = await stack.enter_async_context(control.connect(call))
        assert (await read_answer(reader)).status == 200
        strangers = [await stack.enter_async_context(control.connect(said)) for _ in range(40)]
        for _ in range(10):
            assert (await control.call("GET", "/status")).status == 200
        writer.write(call)  # a kept connection that has shown it is not what makes way
        assert (await read_answer(reader)).status == 200
        assert await strangers[0][0].read(1) in (b"", b"H")
        assert control.refusals == []


def test_the_place_of_a_fault_is_file_and_line_without_folders() -> None:
    try:
        raise ValueError
    except ValueError as error:
        name, _, line = fault_place(error).partition(":")
    assert name == "test_connection.py"
    assert line.isdigit()
    assert fault_place(None) == fault_place(ValueError()) == ""
