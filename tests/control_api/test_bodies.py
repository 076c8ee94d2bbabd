"""Bodies: bounded in size and time, JSON of one strict reading; whatever comes, the answer is 4xx."""

import asyncio
import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_api import bodies
from control_api.answers import Refusal
from control_api.bodies import parse_allow
from control_api.models import AllowRequest
from egress_proxy.core.events import ControlRefused
from tests.control_api.control_service import BEARER, JSON, ControlService, error_of, read_answer
from tests.support.http import read_response, request_bytes

NOT_JSON = [
    b"",
    b" ",
    b"not-json",
    b"'host'",
    b"{",
    b'{"host":"a.example"',
    b'{"host":"a.example",}',
    b'{"host":"a.example"} x',
    b'{"host":"a.example"}{}',
    b"{host:1}",
    b"// c\n{}",
    b'\xef\xbb\xbf{"host":"a.example"}',
    '{"host":"a.example"}'.encode("utf-16"),
    '{"host":"a.example"}'.encode("utf-32-le"),
    b'{"host":"a.example\xff"}',
    b'{"host":"a\n.example"}',
    b'{"host":"a.example","ttl_s":NaN}',
    b'{"host":"a.example","ttl_s":Infinity}',
    b'{"host":"a.example","ttl_s":-Infinity}',
    b'{"host":"a.example","ttl_s":0x10}',
    b'{"host":"a.example","ttl_s":01}',
    b'{"host":"a","host":"b"}',
    b'{"host":"a.example","host":"a.example"}',
    b'{"host":"a.example","ttl_s":5,"ttl_s":5}',
    b'{"host":"a.example","x":{"y":1,"y":2}}',
    b'{"host":"a.example","\\u0068ost":"b.example"}',
    b"[" * 4096,
    b'{"a":' * 800,
]
BAD_FIELD = [
    b"[]",
    b"null",
    b"true",
    b"5",
    b'"a.example"',
    b'["a.example"]',
    b"{}",
    b'{"host":null}',
    b'{"host":["a"]}',
    b'{"host":{}}',
    b'{"host":5}',
    b'{"host":true}',
    b'{"host":"\\ud800"}',
    b'{"host":"a.example","\\ud800":1}',
    b'{"host":"a.example","port":443}',
    b'{"host":"a.example","shared":true}',
    b'{"host":"a.example","private":true}',
    b'{"host":"a.example","ttl_s":"60"}',
    b'{"host":"a.example","ttl_s":true}',
    b'{"host":"a.example","ttl_s":null}',
    b'{"host":"a.example","ttl_s":0}',
    b'{"host":"a.example","ttl_s":-1}',
    b'{"host":"a.example","ttl_s":1e999}',
    b'{"host":"a.example","ttl_s":' + b"9" * 4000 + b"}",
    b'{"host":"a.example","max_uses":0}',
    b'{"host":"a.example","max_uses":1.0}',
    b'{"host":"a.example","max_uses":"1"}',
    b'{"host":"a.example","max_uses":' + b"9" * 4000 + b"}",
    b'{"host":"a.example","max_bytes_out":-1}',
    b'{"host":"a.example","reason":"a\\nb"}',
    b'{"host":"a.example","reason":"\\u001b[2J"}',
    b'{"host":"a.example","reason":7}',
    b'{"host":"a.example","client":""}',
]


@pytest.mark.parametrize("body", NOT_JSON, ids=lambda body: repr(body[:40]))
async def test_what_is_no_json_object_of_one_reading_is_400(control: ControlService, body: bytes) -> None:
    assert error_of(await control.call("POST", "/allow", body)) == (400, "bad-json")
    assert control.entries() == []


async def test_nesting_is_400_whether_or_not_this_python_reads_it(control: ControlService) -> None:
    body = b'{"host":' + b"[" * 2000 + b"]" * 2000 + b"}"
    assert error_of(await control.call("POST", "/allow", body)) in {(400, "bad-json"), (400, "bad-field")}
    assert control.entries() == []


@pytest.mark.parametrize("body", BAD_FIELD[:-1], ids=lambda body: repr(body[:40]))
async def test_a_field_that_is_not_exactly_right_is_400(control: ControlService, body: bytes) -> None:
    assert error_of(await control.call("POST", "/allow", body)) == (400, "bad-field")
    assert control.entries() == []


@pytest.mark.parametrize("body", [BAD_FIELD[-1], b'{"host":"a.example","reason":"secret-\\nvalue"}'])
async def test_a_fault_names_the_field_and_not_the_value(control: ControlService, body: bytes) -> None:
    response = await control.call("POST", "/allow", body)
    assert response.status == 400
    assert "secret-" not in response.json()["detail"]


async def test_a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_not(control: ControlService) -> None:
    body = b'{"host":"a.example"}'
    assert (await control.call("POST", "/allow", body.ljust(4096))).status == 200
    over = await control.call("POST", "/allow", body.ljust(4097))
    assert error_of(over) == (400, "body-too-large")


async def test_a_body_of_two_megabytes_is_refused(control: ControlService) -> None:
    assert error_of(await control.call("POST", "/allow", b"x" * 2_000_000)) == (400, "body-too-large")
    assert control.entries() == []


async def test_a_caller_that_reads_nothing_before_all_is_sent_gets_its_answer_and_no_reset(
    control: ControlService,
) -> None:
    raw = request_bytes("POST", "/allow", (control.host, BEARER, JSON), b"x" * 20_000_000)

    def send_all() -> int:
        with socket.create_connection(("127.0.0.1", control.port), 5) as sock:
            sock.sendall(raw)
            return read_response(sock).status

    assert await asyncio.to_thread(send_all) == 400


async def test_a_compressed_body_is_not_unpacked_even_to_be_thrown_away(control: ControlService) -> None:
    headers = (control.host, BEARER, JSON, ("Content-Encoding", "gzip"))
    next_call = request_bytes("GET", "/status", (control.host, BEARER))
    async with control.connect(request_bytes("POST", "/allow", headers, b"no gzip")) as (reader, writer):
        assert (await read_answer(reader)).status == 415
        writer.write(next_call)  # answered: nobody stumbled over the body
        assert (await read_answer(reader)).status == 200


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


def head(control: ControlService, *more: tuple[str, str]) -> bytes:
    return request_bytes("POST", "/allow", (control.host, BEARER, JSON, *more))


async def test_a_chunked_body_is_read_and_bounded_like_any_other(control: ControlService) -> None:
    framed = head(control, ("Transfer-Encoding", "chunked"))
    small = await control.send(framed + chunked(b'{"host":', b'"a.example"}'))
    assert small.status == 200
    large = await control.send(framed + chunked(*[b" " * 1000] * 5))
    assert error_of(large) == (400, "body-too-large")


@pytest.mark.parametrize("broken", [b"zz\r\n{}", b"-1\r\n", b"5\r\n{}\r\n0\r\n\r\n\r\n"])
async def test_broken_chunks_are_400(control: ControlService, broken: bytes) -> None:
    response = await control.send(head(control, ("Transfer-Encoding", "chunked")) + broken)
    assert error_of(response) == (400, "bad-request")
    assert control.entries() == []


async def test_chunks_that_break_when_the_body_is_being_read_have_no_effect(
    control: ControlService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.2)
    begun = head(control, ("Transfer-Encoding", "chunked")) + b"8\r\n{"
    async with control.connect(begun) as (reader, writer):
        await asyncio.sleep(0.05)  # until the server is inside the body
        writer.write(b'"host":zz\r\n')
        # aiohttp's parser in Python tells the reader of the body at once, the one in C does not.
        assert error_of(await read_answer(reader)) in {(400, "bad-request"), (408, "body-timeout")}
    assert control.entries() == []
    assert [type(event) for event in control.events] == [ControlRefused]


async def test_a_body_that_does_not_come_is_408(
    control: ControlService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.05)
    slow = await control.send(head(control, ("Content-Length", "20")) + b'{"host":')
    assert error_of(slow) == (408, "body-timeout")
    assert control.entries() == []


async def test_a_caller_that_hangs_up_inside_a_body_has_no_effect_and_is_no_fault(
    control: ControlService,
) -> None:
    async with control.connect(head(control, ("Content-Length", "20")) + b'{"host":'):
        await asyncio.sleep(0.05)  # until the server is inside the body
    async with asyncio.timeout(5):
        while not control.events:
            await asyncio.sleep(0.01)
    assert [(event.status, event.path) for event in control.refusals] == [(400, "/allow")]
    assert len(control.events) == 1


async def test_a_caller_that_asks_first_is_told_to_go_on(control: ControlService) -> None:
    body = b'{"host":"a.example"}'
    first = head(control, ("Expect", "100-continue"), ("Content-Length", str(len(body))))
    async with control.connect(first) as (reader, writer):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await read_answer(reader)).status == 200


@pytest.mark.parametrize(("more", "status"), [(("Expect", "200-ok"), 417), (("Expect", "100-continue"), 400)])
async def test_another_expectation_is_417_and_a_large_body_is_refused_before_it_is_sent(
    control: ControlService, more: tuple[str, str], status: int
) -> None:
    length = ("Content-Length", "5000" if status == 400 else "20")
    response = await control.send(head(control, more, length))
    assert response.status == status
    assert response.interim == ()


@given(st.binary(max_size=200))
def test_no_bytes_are_a_request_by_accident_and_none_are_a_fault(body: bytes) -> None:
    assert isinstance(parse_allow(body), Refusal)


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5)
)
def test_no_json_value_in_place_of_a_host_is_a_fault(value: object) -> None:
    asked = parse_allow(json.dumps({"host": value}).encode())
    assert isinstance(asked, AllowRequest) == (isinstance(value, str) and len(value) <= 263)
