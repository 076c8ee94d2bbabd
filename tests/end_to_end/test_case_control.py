"""Case C57: who may call the control API, and with what. From where: test_case_control_pages.py.

Nothing but one right call may change the list; every other one is refused and leaves no grant behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.end_to_end.bad_grants import BAD_BODIES, BAD_ENTRIES
from tests.end_to_end.case_control import BEARER, JSON, WANTED, call, nothing_is_granted, own_host
from tests.end_to_end.case_parts import NO_SUCH_NAME, connect_head, refusal
from tests.support.byte_stream import connect, read_until_end
from tests.support.dns_stub import DnsStub
from tests.support.http import read_response, request_bytes
from tests.support.service import TOKEN, Service

PATHS = ("/allow", "/grants", "/status", "/reload", "/grants/g1", "/", "/no-such-path", "/metrics", "/events")


@pytest.fixture(scope="module")
def names() -> Iterator[DnsStub]:
    with DnsStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def running(names: DnsStub) -> Iterator[Service]:
    with Service("--allow", "ok.example", "--resolver", names.address, token=TOKEN) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Iterator[Service]:
    """No test leaves a grant behind; one that is refused left none."""
    yield running
    for grant in running.control("GET", "/grants").json()["grants"]:
        running.control("DELETE", f"/grants/{grant['id']}")
    running.close_sockets()


# C57: the token.

NO_TOKEN: dict[str, tuple[tuple[str, str], ...]] = {
    "none": (),
    "an empty one": (("Authorization", ""),),
    "no value": (("Authorization", "Bearer"),),
    "a blank value": (("Authorization", "Bearer "),),
    "the token alone": (("Authorization", TOKEN),),
    "small letters": (("Authorization", f"bearer {TOKEN}"),),
    "capitals": (("Authorization", f"BEARER {TOKEN}"),),
    "Basic": (("Authorization", f"Basic {TOKEN}"),),
    "Token": (("Authorization", f"Token {TOKEN}"),),
    "two lines": (BEARER, BEARER),
    "two lines, one wrong": (BEARER, ("Authorization", "Bearer x")),
    "two in a line": (("Authorization", f"Bearer {TOKEN}, Bearer {TOKEN}"),),
    "in a cookie": (("Cookie", f"token={TOKEN}"), ("Cookie", f"Authorization=Bearer {TOKEN}")),
    "in another header": (("X-Authorization", f"Bearer {TOKEN}"), ("Proxy-Authorization", f"Bearer {TOKEN}")),
    "a tab": (("Authorization", f"Bearer\t{TOKEN}"),),
    "two blanks": (("Authorization", f"Bearer  {TOKEN}"),),
    "a comma behind": (("Authorization", f"Bearer {TOKEN},"),),
}


@pytest.mark.parametrize("headers", NO_TOKEN.values(), ids=NO_TOKEN.keys())
def test_without_the_token_as_it_must_be_it_is_401_and_nothing_happens(
    service: Service, headers: tuple[tuple[str, str], ...]
) -> None:
    answer = call(service, own_host(service), JSON, *headers)
    assert answer.status == 401
    assert (answer.value("WWW-Authenticate") or "").startswith("Bearer")
    assert TOKEN.encode() not in answer.head.raw + answer.body
    assert nothing_is_granted(service)


def test_wrong_tokens_are_401_and_slow_and_the_right_one_works_again(
    start_service: Callable[..., Service],
) -> None:
    service = start_service("--allow-none", token=TOKEN)  # its own: the others would be slow, too
    for wrong in (TOKEN + "x", TOKEN[:-1], TOKEN.upper(), TOKEN + "\xe9", "x"):
        assert call(service, own_host(service), JSON, ("Authorization", f"Bearer {wrong}")).status == 401
    begun = time.monotonic()
    assert call(service, own_host(service), JSON, ("Authorization", "Bearer x")).status == 401
    assert time.monotonic() - begun > 0.4  # the more wrong ones, the slower
    begun = time.monotonic()
    assert call(service, own_host(service), JSON, BEARER, timeout_s=12).status == 200
    assert time.monotonic() - begun < 12


def test_no_token_in_the_url(service: Service) -> None:
    for path in (
        f"/allow?token={TOKEN}",
        f"/allow?access_token={TOKEN}",
        f"/allow?Authorization=Bearer%20{TOKEN}",
    ):
        assert call(service, own_host(service), JSON, path=path).status == 401
    assert nothing_is_granted(service)


def test_every_path_needs_the_token_but_healthz(service: Service) -> None:
    got = {path: call(service, own_host(service), method="GET", path=path, body=b"").status for path in PATHS}
    assert {status for path, status in got.items() if path != "/"} == {401}
    assert got["/"] in (200, 401)  # the page is static, where there is one
    health = call(service, own_host(service), method="GET", path="/healthz", body=b"")
    assert (health.status, health.json()["status"]) == (200, "ok")
    assert not {"version", "rules", "grants"} & health.json().keys()


def test_wrong_methods_are_405_and_wrong_paths_404_after_the_token(service: Service) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
        answer = service.control(method, "/allow")
        assert (answer.status, answer.value("Allow")) == (405, "POST"), method
    for path in ("/allow/", "//allow", "/Allow", "/allow/x", "/%61llow", "/grants/../allow", "/api/allow"):
        assert service.control("POST", path, {"host": "wanted.example"}).status == 404, path
    assert nothing_is_granted(service)


# C57: what may be in a call.


def test_a_bad_entry_is_400_and_leaves_the_list_alone(service: Service) -> None:
    for entry in BAD_ENTRIES:
        answer = service.control("POST", "/allow", {"host": entry})
        assert (answer.status, answer.json().keys()) == (400, {"error", "detail"}), entry
    assert nothing_is_granted(service)


def test_a_bad_body_is_400_and_leaves_the_list_alone(service: Service) -> None:
    for body in BAD_BODIES:
        answer = service.control("POST", "/allow", body=body, headers={"Content-Type": "application/json"})
        assert (answer.status, answer.json().keys()) == (400, {"error", "detail"}), body[:80]
    assert nothing_is_granted(service)


def test_a_body_of_2_mb_is_refused_at_once(service: Service) -> None:
    begun = time.monotonic()
    with connect(service.control_port) as sock:
        head = [own_host(service), BEARER, JSON, ("Content-Length", "2000000")]
        sock.sendall(request_bytes("POST", "/allow", head) + b" " * 5_000)
        assert read_response(sock).status == 400
    assert time.monotonic() - begun < 2
    chunks = b"".join(b"1000\r\n" + b" " * 4_096 + b"\r\n" for _ in range(3)) + b"0\r\n\r\n"
    head = [own_host(service), BEARER, JSON, ("Transfer-Encoding", "chunked")]
    assert service.control_request(request_bytes("POST", "/allow", head) + chunks).status == 400
    assert nothing_is_granted(service)


def test_grants_are_idempotent_and_visible(service: Service) -> None:
    for _ in range(3):
        answer = service.control("POST", "/allow", {"host": "Wanted.Example"})
        assert answer.json() == {"allowed": "wanted.example", "ports": "80,443"}
    (grant,) = service.control("GET", "/grants").json()["grants"]
    assert (grant["allowed"], grant["ports"], grant["client"]) == ("wanted.example", "80,443", None)
    assert refusal(service, connect_head("wanted.example:80")) == NO_SUCH_NAME
    assert service.allow("x.example:8443")["ports"] == "8443"
    assert service.allow("*.y.example:*") == {"allowed": "*.y.example", "ports": "*"}
    assert refusal(service, connect_head("a.y.example:9")) == NO_SUCH_NAME
    limited = service.allow("z.example", ttl_s=60, max_uses=3, reason="a test")
    assert limited.keys() == {"allowed", "ports", "id", "expires_at"}
    assert 50 < limited["expires_at"] - time.time() < 61


def test_the_ports_do_not_do_each_others_work(service: Service) -> None:
    posted = service.request(request_bytes("POST", "/allow", [BEARER, JSON], WANTED))
    assert (posted.status, posted.value("Allow")) == (405, "CONNECT")
    for octets in (
        b"CONNECT ok.example:443 HTTP/1.1\r\nHost: ok.example:443\r\n\r\n",
        f"CONNECT ok.example:443 HTTP/1.1\r\nHost: 127.0.0.1:{service.control_port}\r\n\r\n".encode(),
        request_bytes("GET", "http://ok.example/", [("Host", "ok.example"), BEARER]),
    ):
        with connect(service.control_port) as sock:
            sock.sendall(octets)
            assert read_until_end(sock, 1)[0].startswith(b"HTTP/1.1 4")
    assert nothing_is_granted(service)
