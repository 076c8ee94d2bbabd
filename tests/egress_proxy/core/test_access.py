"""Rules of core/access.py: which requests an inject route serves, by target, client, method and path.

What decide() makes of it is in test_policy.py.
"""

import pytest

from egress_proxy.core.access import ANONYMOUS, Access, Client, Door, InjectRoute, Scheme
from egress_proxy.core.host import parse_authority, parse_host
from egress_proxy.core.request import path_has_dot_segments

API = InjectRoute("provider", parse_host("api.example"))


@pytest.mark.parametrize(
    ("authority", "served"),
    [("api.example:80", True), ("API.example.:80", True), ("api.example:443", False),
     ("api.example:8080", False), ("a.api.example:80", False), ("example:80", False),
     ("127.0.0.1:80", False)],
)  # fmt: skip
def test_a_route_serves_its_host_at_its_port(authority: str, served: bool) -> None:
    assert API.serves(parse_authority(authority), Client()) is served


def test_what_clients_name_and_what_is_dialled_differ() -> None:
    assert str(API.upstream) == "api.example:443"
    local = InjectRoute("local", parse_host("127.0.0.1"), 8080, 11434, Scheme.HTTP)
    assert local.serves(parse_authority("127.0.0.1:8080"), Client())
    assert not local.serves(parse_authority("127.0.0.1:11434"), Client())
    assert str(local.upstream) == "127.0.0.1:11434"


def test_a_route_of_one_client_serves_no_other() -> None:
    route = InjectRoute("provider", parse_host("api.example"), client="build")
    target = parse_authority("api.example:80")
    assert route.serves(target, Client("build"))
    for other in (
        Client(),
        Client("Build"),
        Client("build2"),
        Client("", "build"),
        Client(ANONYMOUS, "build"),
    ):
        assert not route.serves(target, other)


def test_a_client_is_anonymous_until_its_own_token_says_otherwise() -> None:
    assert Client().id == ANONYMOUS
    assert Client(label="build").id == ANONYMOUS


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "PROPFIND"])
def test_a_route_without_methods_admits_ordinary_ones(method: str) -> None:
    assert API.admits_method(method)


@pytest.mark.parametrize("method", ["TRACE", "CONNECT"])
def test_no_route_admits_trace_or_connect(method: str) -> None:
    assert not API.admits_method(method)
    asked_for = InjectRoute("provider", parse_host("api.example"), methods=frozenset({"GET", method}))
    assert not asked_for.admits_method(method)


def test_a_route_with_methods_admits_just_those_in_just_that_case() -> None:
    route = InjectRoute("provider", parse_host("api.example"), methods=frozenset({"GET", "POST"}))
    asked = ["GET", "POST", "get", "HEAD", "PUT", ""]
    assert [method for method in asked if route.admits_method(method)] == ["GET", "POST"]


@pytest.mark.parametrize(
    ("prefix", "admitted", "refused"),
    [(b"/v1", [b"/v1", b"/v1/", b"/v1/a", b"/v1?q", b"/v1/a/b?../", b"/v1//a"],
      [b"/", b"/v", b"/v10", b"/v1a", b"/v1%2Fa", b"/V1/a", b"//v1/a", b"/v1;x/a", b"/v1.", b"/v1%3Fq"]),
     (b"/v1/", [b"/v1/", b"/v1/a", b"/v1/?q"], [b"/v1", b"/v1?q", b"/v10/"]),
     (b"/", [b"/", b"/a", b"/?q"], [b"", b"*", b"a", b"?q"]),
     (b"/a/b", [b"/a/b", b"/a/b/c"], [b"/a", b"/a/", b"/a/bc", b"/a?/a/b", b"/x/a/b", b"/a%2fb"])],
)  # fmt: skip
def test_a_path_prefix_ends_at_a_slash(prefix: bytes, admitted: list[bytes], refused: list[bytes]) -> None:
    route = InjectRoute("provider", parse_host("api.example"), paths=(prefix,))
    assert [path for path in admitted if not route.admits_path(path)] == []
    assert [path for path in refused if route.admits_path(path)] == []


def test_one_of_several_prefixes_is_enough() -> None:
    route = InjectRoute("provider", parse_host("api.example"), paths=(b"/v1", b"/v2/chat"))
    asked = [b"/v1/x", b"/v2/chat", b"/v2", b"/v3"]
    assert [path for path in asked if route.admits_path(path)] == [b"/v1/x", b"/v2/chat"]


@pytest.mark.parametrize(
    "path", [b"/v1/../admin", b"/v1/%2e%2e/admin", b"/v1/..;/admin", b"/v1%2f..%2fadmin"]
)
@pytest.mark.parametrize("paths", [(), (b"/v1",), (b"/",)])
def test_a_climbing_path_is_admitted_by_no_route(path: bytes, paths: tuple[bytes, ...]) -> None:
    assert path_has_dot_segments(path)
    assert not InjectRoute("provider", parse_host("api.example"), paths=paths).admits_path(path)


def test_what_is_recorded_and_configured_has_stable_words() -> None:
    assert [*Door] == ["tunnel", "absolute", "connect_inject", "base_url"]
    assert [*Scheme] == ["https", "http"]
    assert ANONYMOUS == "anonymous"


def test_a_route_is_as_strict_as_can_be_where_nothing_is_said() -> None:
    assert (API.scheme, API.port, API.upstream_port) == (Scheme.HTTPS, 80, 443)
    assert API.opaque_bodies is False
    assert (API.methods, API.paths, API.client) == (frozenset(), (), None)


def test_a_question_without_a_request_is_a_connect() -> None:
    access = Access(Client(), parse_authority("api.example:80"), Door.CONNECT_INJECT)
    assert (access.method, access.path) == ("CONNECT", b"")


def test_default_ports_belong_to_the_scheme() -> None:
    assert (Scheme.HTTPS.default_port, Scheme.HTTP.default_port) == (443, 80)
