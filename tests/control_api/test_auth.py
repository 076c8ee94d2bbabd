"""Who may call: cases C57 and C58, and what wrong tokens cost whom."""

import asyncio
import time

import pytest

from control_api import auth
from control_api.auth import FIRST_WAIT_S, FORGET_STEP_S, MOST_STEPS, Backoff
from tests.control_api.control_service import BEARER, JSON, TOKEN, ControlService, error_of
from tests.support.http import request_bytes

NO_TOKEN: list[list[tuple[str, str]]] = [
    [],
    [("Authorization", "")],
    [("Authorization", "Bearer")],
    [("Authorization", "Bearer ")],
    [("Authorization", f"Bearer {TOKEN}x")],
    [("Authorization", f"Bearer {TOKEN[:-1]}")],
    [("Authorization", f"Bearer {TOKEN.swapcase()}")],
    [("Authorization", f"Bearer  {TOKEN}")],
    [("Authorization", f"Bearer\t{TOKEN}")],
    [("Authorization", f"Bearer {TOKEN} x")],
    [("Authorization", f"Bearer {TOKEN}, Bearer {TOKEN}")],
    [("Authorization", f"bearer {TOKEN}")],
    [("Authorization", f"BEARER {TOKEN}")],
    [("Authorization", f"Basic {TOKEN}")],
    [("Authorization", "Basic OmMwbnRyMGwtVDBrZW4=")],
    [("Authorization", f"Token {TOKEN}")],
    [("Authorization", TOKEN)],
    [("Authorization", f"Bearer {TOKEN}\u00e4")],
    [BEARER, BEARER],
    [BEARER, ("authorization", "Bearer wrong")],
    [("Cookie", f"token={TOKEN}; Authorization=Bearer {TOKEN}")],
    [("Proxy-Authorization", f"Bearer {TOKEN}")],
    [("X-Authorization", f"Bearer {TOKEN}")],
    [("Token", TOKEN)],
]
FORGED_HOSTS = [
    "rebind.evil.test:{port}",
    "rebind.evil.test",
    "a.localhost",
    "localhost.evil.test:{port}",
    "127.0.0.1.evil.test:{port}",
    "evil.test@127.0.0.1:{port}",
    "127.0.0.1:{port}@evil.test",
    "127.0.0.1:{port}, evil.test",
    "127.0.0.1:0{port}",
    "127.1:{port}",
    "2130706433:{port}",
    "0.0.0.0:{port}",
    "[64:ff9b::127.0.0.1]:{port}",
    "192.168.0.1:{port}",
    "[::]:{port}",
    "[::1%lo]:{port}",
    "localhost:{port}/",
    "",
]
FORGED_ORIGINS = [
    "http://evil.test",
    "http://evil.test:{port}",
    "null",
    "",
    "http://127.0.0.1",
    "http://127.0.0.1:1",
    "https://127.0.0.1:{port}",
    "http://localhost:{port}",
    "http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port} http://evil.test",
    "http://http://127.0.0.1:{port}",
    "127.0.0.1:{port}",
    "HTTP://127.0.0.1:{port}",
    "chrome-extension://abcdefgh",
]
NOT_JSON_TYPES: list[list[tuple[str, str]]] = [
    [("Content-Encoding", "gzip")],
    [("Content-Type", "")],
    [("Content-Type", "text/plain")],
    [("Content-Type", "text/plain; application/json")],
    [("Content-Type", "application/x-www-form-urlencoded")],
    [("Content-Type", "multipart/form-data; boundary=x")],
    [("Content-Type", "application/jsonx")],
    [("Content-Type", "application/json, text/plain")],
    [("Content-Type", "application/json; charset=utf-16")],
    [("Content-Type", "application/json; boundary=x")],
    [JSON, ("Content-Encoding", "gzip")],
]
BODY = b'{"host":"a.example"}'


def at(port: int, text: str) -> str:
    return text.replace("{port}", str(port))


@pytest.mark.parametrize("headers", NO_TOKEN, ids=str)
async def test_anything_but_one_bearer_line_is_401_alike_and_has_no_effect(
    control: ControlService, headers: list[tuple[str, str]]
) -> None:
    bare = await control.request("POST", "/allow", [control.host, JSON], BODY)
    response = await control.request("POST", "/allow", [control.host, JSON, *headers], BODY)
    assert error_of(response) == (401, "unauthorized")
    assert response.body == bare.body
    assert response.value("WWW-Authenticate") == 'Bearer realm="egress-control"'
    assert control.entries() == []


async def test_the_token_is_taken_from_no_query(control: ControlService) -> None:
    for name in ("token", "access_token", "Authorization"):
        response = await control.request("GET", f"/status?{name}={TOKEN}", [control.host])
        assert error_of(response) == (401, "unauthorized")
    assert TOKEN not in repr(control.events)


@pytest.mark.parametrize("sent", [b"\xff\xfe", b"\xc3\xa4", TOKEN.encode() + b"\xff", b"\x80" * 4000])
async def test_bytes_that_are_no_ascii_are_a_wrong_token_like_any_other(
    control: ControlService, sent: bytes
) -> None:
    lines = request_bytes("GET", "/status", [control.host])[:-2]
    response = await control.send(lines + b"Authorization: Bearer " + sent + b"\r\n\r\n")
    assert error_of(response) == (401, "unauthorized")


async def test_the_right_token_passes_with_the_name_of_the_header_in_any_case(
    control: ControlService,
) -> None:
    for name in ("Authorization", "authorization", "AUTHORIZATION"):
        response = await control.request("GET", "/status", [control.host, (name, f"Bearer {TOKEN}")])
        assert response.status == 200


async def test_a_path_that_does_not_exist_is_401_without_the_token_and_404_with_it(
    control: ControlService,
) -> None:
    for path in ("/", "/nothing", "/allow/", "/grants/a/b", "/healthz/x", "//allow", "/%61llow", "/ALLOW"):
        assert error_of(await control.request("GET", path, [control.host])) == (401, "unauthorized")
        assert error_of(await control.call("GET", path)) == (404, "not-found")


@pytest.mark.parametrize("named", FORGED_HOSTS)
async def test_a_host_that_is_not_ours_is_403_even_with_the_token(
    control: ControlService, named: str
) -> None:
    headers = [("Host", at(control.port, named)), BEARER, JSON]
    assert error_of(await control.request("POST", "/allow", headers, BODY)) == (403, "host-not-ours")
    assert error_of(await control.request("GET", "/healthz", headers[:1])) == (403, "host-not-ours")
    assert control.entries() == []


async def test_no_host_and_two_of_them_are_refused(control: ControlService) -> None:
    old = await control.send(request_bytes("GET", "/healthz", version="HTTP/1.0"))
    assert error_of(old) == (403, "host-not-ours")
    assert (await control.request("GET", "/healthz", [])).status == 400
    assert (await control.request("GET", "/healthz", [control.host, control.host])).status == 400


@pytest.mark.parametrize("port", ["", ":{port}", ":1", ":80", ":9000"])
@pytest.mark.parametrize(
    "name",
    ["127.0.0.1", "localhost", "LocalHost", "localhost.", "[::1]", "127.0.0.2", "[::ffff:127.0.0.1]"],
)
async def test_loopback_names_with_any_port_or_none_are_ours(
    control: ControlService, name: str, port: str
) -> None:
    """A tunnel of ssh and a container's published port have a port of their own."""
    headers = [("Host", name + at(control.port, port)), BEARER]
    assert (await control.request("GET", "/status", headers)).status == 200


async def test_a_page_of_another_local_port_is_refused_whatever_host_it_reaches(
    control: ControlService,
) -> None:
    for host, origin in (("localhost:9000", "http://localhost:3000"), ("localhost", "http://localhost:3000")):
        headers = [("Host", host), BEARER, JSON, ("Origin", origin)]
        assert error_of(await control.request("POST", "/allow", headers, BODY)) == (403, "origin-not-ours")
    published = [("Host", "localhost:9000"), BEARER, JSON, ("Origin", "http://localhost:9000")]
    assert (await control.request("POST", "/allow", published, BODY)).status == 200


async def test_a_body_without_a_type_is_json_where_no_page_sent_it(control: ControlService) -> None:
    assert (await control.request("POST", "/allow", [control.host, BEARER], BODY)).status == 200
    page = ("Origin", f"http://127.0.0.1:{control.port}")
    refused = await control.request("POST", "/allow", [control.host, BEARER, page], BODY)
    assert error_of(refused) == (415, "not-json")


@pytest.mark.parametrize("origin", FORGED_ORIGINS)
async def test_an_origin_other_than_the_pages_own_is_403_even_with_the_token(
    control: ControlService, origin: str
) -> None:
    headers = [control.host, BEARER, JSON, ("Origin", at(control.port, origin))]
    assert error_of(await control.request("POST", "/allow", headers, BODY)) == (403, "origin-not-ours")
    assert control.entries() == []


async def test_two_origins_are_refused_even_if_both_are_ours(control: ControlService) -> None:
    own = ("Origin", f"http://127.0.0.1:{control.port}")
    response = await control.request("GET", "/status", [control.host, BEARER, own, own])
    assert error_of(response) == (403, "origin-not-ours")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]"])
async def test_the_pages_own_origin_passes(control: ControlService, name: str) -> None:
    place = f"{name}:{control.port}"
    headers = [("Host", place), ("Origin", f"http://{place}"), BEARER, JSON]
    assert (await control.request("POST", "/allow", headers, BODY)).status == 200


@pytest.mark.parametrize("origin", ["http://evil.test", "http://127.0.0.1:{port}"])
async def test_a_preflight_is_refused_and_no_answer_ever_lets_another_origin_read_it(
    control: ControlService, origin: str
) -> None:
    asked = [
        control.host,
        ("Origin", at(control.port, origin)),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type"),
        ("Access-Control-Request-Private-Network", "true"),
    ]
    for headers in (asked, [*asked, BEARER]):
        response = await control.request("OPTIONS", "/allow", headers)
        assert response.status in (401, 403, 405)
        assert not [name for name, _ in response.head.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("headers", NOT_JSON_TYPES, ids=str)
async def test_a_body_that_is_not_json_by_its_type_is_415(
    control: ControlService, headers: list[tuple[str, str]]
) -> None:
    response = await control.request("POST", "/allow", [control.host, BEARER, *headers], BODY)
    assert error_of(response) == (415, "not-json")
    assert control.entries() == []


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
    ],
)
async def test_json_may_be_spelled_as_headers_allow(control: ControlService, kind: str) -> None:
    headers = [control.host, BEARER, ("Content-Type", kind)]
    assert (await control.request("POST", "/allow", headers, BODY)).status == 200


async def test_the_type_counts_where_a_body_is_and_nowhere_else(control: ControlService) -> None:
    form = ("Content-Type", "application/x-www-form-urlencoded")  # what curl says with an empty -d
    empty = [control.host, BEARER, form, ("Content-Length", "0")]
    assert (await control.request("POST", "/reload", empty)).status == 200
    framed = request_bytes("POST", "/reload", [control.host, BEARER, form, ("Transfer-Encoding", "chunked")])
    assert (await control.send(framed + b"0\r\n\r\n")).status == 415


async def test_checks_come_in_the_order_host_origin_type_token_path_method_body(
    control: ControlService,
) -> None:
    evil, bad_type = ("Origin", "http://evil.test"), ("Content-Type", "text/plain")
    wrong = ("Authorization", "Bearer wrong")
    steps = [
        ([("Host", "evil.test"), evil, bad_type, wrong], "/nothing", 403, "host-not-ours"),
        ([control.host, evil, bad_type, wrong], "/nothing", 403, "origin-not-ours"),
        ([control.host, bad_type, wrong], "/nothing", 415, "not-json"),
        ([control.host, JSON, wrong], "/nothing", 401, "unauthorized"),
        ([control.host, JSON, BEARER], "/nothing", 404, "not-found"),
        ([control.host, JSON, BEARER], "/status", 405, "method-not-allowed"),
        ([control.host, JSON, BEARER], "/allow", 400, "bad-json"),
    ]
    for headers, path, status, code in steps:
        assert error_of(await control.request("POST", path, headers, b"{")) == (status, code)


def test_waiting_doubles_with_every_wrong_token_up_to_a_bound_and_is_forgotten_step_by_step() -> None:
    now = 0.0
    backoff = Backoff(lambda: now)
    assert backoff.wait_s() == 0
    waits = []
    for _ in range(MOST_STEPS + 3):
        backoff.note_wrong()
        waits.append(backoff.wait_s())
    assert waits[:3] == [FIRST_WAIT_S, 2 * FIRST_WAIT_S, 4 * FIRST_WAIT_S]
    assert set(waits[MOST_STEPS - 1 :]) == {1.6}
    now += FORGET_STEP_S
    assert backoff.wait_s() == pytest.approx(0.8)
    now = 12.0
    assert backoff.wait_s() == 0


def test_however_long_somebody_guesses_the_count_is_one_number() -> None:
    backoff = Backoff(lambda: 0.0)
    for _ in range(100_000):
        backoff.note_wrong()
    assert backoff.wait_s() == 1.6


async def guess(control: ControlService, token: str = "wrong") -> float:
    """How long the answer took."""
    started = time.monotonic()
    headers = [control.host, ("Authorization", f"Bearer {token}")]
    assert (await control.request("GET", "/status", headers)).status == 401
    return time.monotonic() - started


async def test_wrong_tokens_are_answered_later_and_later(control: ControlService) -> None:
    took = [await guess(control) for _ in range(4)]
    assert took[3] >= FIRST_WAIT_S * 8


async def test_what_is_no_bearer_line_slows_nobody_down(control: ControlService) -> None:
    for _ in range(2 * MOST_STEPS):  # what a page in a browser can send
        await control.request("GET", "/status", [control.host])
        await control.request("GET", "/status", [control.host, ("Authorization", "Basic eDp5")])
    started = time.monotonic()
    assert (await control.call("GET", "/status")).status == 200
    assert time.monotonic() - started < FIRST_WAIT_S * 2 ** (MOST_STEPS - 1)


async def test_the_right_token_works_in_the_middle_of_a_flood_of_wrong_ones(control: ControlService) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(guess(control, f"wrong-{number}"))
        await asyncio.sleep(0.05)
        started = time.monotonic()
        assert (await control.call("GET", "/status")).status == 200
        assert time.monotonic() - started < 12  # contract section 8


async def test_the_right_token_waits_like_a_wrong_one_or_hanging_up_early_would_tell_them_apart(
    control: ControlService,
) -> None:
    for _ in range(3):
        await guess(control)
    started = time.monotonic()
    assert (await control.call("GET", "/status")).status == 200
    assert time.monotonic() - started >= FIRST_WAIT_S * 4


async def test_a_guess_whose_sender_hangs_up_instead_of_waiting_has_no_effect(
    control: ControlService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "FIRST_WAIT_S", 30.0)
    wrong = [control.host, JSON, ("Authorization", "Bearer wrong")]
    async with control.connect(request_bytes("POST", "/allow", wrong, BODY)):
        await asyncio.sleep(0.05)  # until it waits
        async with control.connect(request_bytes("POST", "/reload", [control.host, BEARER])):
            await asyncio.sleep(0.05)
    async with asyncio.timeout(5):  # and not 30: calls without a caller must not pile up
        while len(control.refusals) < 2:
            await asyncio.sleep(0.01)
    assert (control.entries(), control.reloads) == ([], 0)
