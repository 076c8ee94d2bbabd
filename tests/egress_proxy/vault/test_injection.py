"""The rewritten head: what is removed, set, and left as it came; and the forms of a secret.

Pure functions, no sockets. See egress_proxy/vault/injection.py and contract section 4.
"""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.access import InjectRoute, Scheme
from egress_proxy.core.host import parse_host
from egress_proxy.core.request import RequestHead, parse_head
from egress_proxy.vault.injection import (
    Credential,
    HeldCredential,
    Rewriter,
    UpstreamHead,
    secret_texts,
    unsearched,
)
from egress_proxy.vault.secret import Secret, flaw
from egress_proxy.vault.sources import HeldSource, SecretSource, open_source, parse_source

SECRET = "sk-CANARY-123"
ROUTE = InjectRoute("provider", parse_host("api.example.com"))
OPAQUE = InjectRoute("provider", parse_host("api.example.com"), opaque_bodies=True)
BEARER = HeldCredential(b"Authorization", "Bearer {secret}", Secret(SECRET))

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40)
SECRETS = PRINTABLE.filter(lambda text: flaw(text) is None)


def source(value: str = SECRET) -> HeldSource:
    return HeldSource(parse_source("env:KEY"), Secret(value))


def sent(
    *headers: tuple[bytes, bytes],
    route: InjectRoute = ROUTE,
    credential: HeldCredential | None = BEARER,
) -> UpstreamHead:
    head = RequestHead("POST", b"http://api.example.com/v1", (1, 1), headers)
    return Rewriter(route, credential).rewrite(head, b"/v1")


def others(head: UpstreamHead) -> list[tuple[bytes, bytes]]:
    """The headers but for those that every rewritten head has."""
    set_here = (b"Host", b"Accept-Encoding", b"Authorization")
    return [header for header in head.headers if header[0] not in set_here]


def test_a_plain_request_gets_host_codings_and_credential() -> None:
    assert sent((b"Host", b"evil.test"), (b"Content-Type", b"text/plain")).headers == (
        (b"Host", b"api.example.com"),
        (b"Content-Type", b"text/plain"),
        (b"Accept-Encoding", b"identity"),
        (b"Authorization", b"Bearer sk-CANARY-123"),
    )


def test_method_and_path_go_out_byte_for_byte() -> None:
    path = b"/a%2Fb/%41/../c//d;p=1?x=%20+y&z=%2B&u=/"
    head = Rewriter(ROUTE, BEARER).rewrite(RequestHead("pUt", b"/", (1, 0), ()), path)
    assert (head.method, head.target) == ("pUt", path)


def test_other_headers_stay_in_order_and_byte_for_byte() -> None:
    kept = [
        (b"x-B", b"1"),
        (b"Content-Length", b"3"),
        (b"X-b", b""),
        (b"Origin", b"http://a"),
        (b"x-B", b"caf\xc3\xa9  \t x"),
        (b"Range", b"bytes=0-1"),
        (b"X-Forwarded-For", b"10.0.0.1"),
    ]
    assert others(sent(*kept)) == kept


@pytest.mark.parametrize(
    "name",
    [
        b"Authorization",
        b"AUTHORIZATION",
        b"Proxy-Authorization",
        b"Proxy_Authorization",
        b"Cookie",
        b"cookie",
        b"X-Api-Key",
        b"x_api_key",
        b"X-API_Key",
        b"X.Api.Key",
        b"api-key",
        b"Api_Key",
        b"X-Goog-Api-Key",
        b"x_goog_api_key",
    ],
)
@pytest.mark.parametrize("credential", [BEARER, None])
def test_credentials_of_the_client_are_removed_in_any_spelling(
    name: bytes, credential: HeldCredential | None
) -> None:
    head = sent((name, b"A"), (b"X-Kept", b"k"), (name.swapcase(), b"A"), credential=credential)
    assert b"A" not in [value for _, value in head.headers]
    assert others(head) == [(b"X-Kept", b"k")]


@pytest.mark.parametrize("name", [b"X-Provider-Token", b"x_provider_token", b"X-PROVIDER.TOKEN"])
def test_the_rules_own_header_is_removed_in_any_spelling(name: bytes) -> None:
    own = HeldCredential(b"X-Provider-Token", "{secret}", Secret(SECRET))
    head = sent((name, b"A"), credential=own)
    assert others(head) == [(b"X-Provider-Token", SECRET.encode())]


@pytest.mark.parametrize(
    "name",
    [
        b"Connection",
        b"Keep-Alive",
        b"keep_alive",
        b"TE",
        b"Trailer",
        b"Transfer-Encoding",
        b"transfer_encoding",
        b"Upgrade",
        b"Proxy-Connection",
        b"proxy_connection",
        b"Proxy-Whatever",
        b"Expect",
        b"hOST",
    ],
)
@pytest.mark.parametrize("route", [ROUTE, OPAQUE])
def test_hop_by_hop_headers_do_not_travel(name: bytes, route: InjectRoute) -> None:
    assert others(sent((name, b"x"), (b"X-Kept", b"k"), route=route)) == [(b"X-Kept", b"k")]


@pytest.mark.parametrize("connection", [b"x-hop", b"close, X-HOP", b"\tX-Hop ,, x-other", b"x_hop"])
def test_headers_named_in_connection_do_not_travel(connection: bytes) -> None:
    head = sent((b"X-Hop", b"1"), (b"Connection", connection), (b"x_hop", b"2"), (b"X-Kept", b"k"))
    assert others(head) == [(b"X-Kept", b"k")]


def test_every_connection_header_counts() -> None:
    head = sent((b"connection", b"x-a"), (b"X-A", b"1"), (b"X-B", b"2"), (b"Connection", b"x-b"))
    assert others(head) == []


@pytest.mark.parametrize(
    "victim", [b"content-length", b"host", b"authorization", b"accept-encoding", b"Content_Length"]
)
def test_connection_cannot_remove_framing_host_or_credential(victim: bytes) -> None:
    head = sent((b"Content-Length", b"40"), (b"Connection", victim))
    assert head.headers == (
        (b"Host", b"api.example.com"),
        (b"Content-Length", b"40"),
        (b"Accept-Encoding", b"identity"),
        (b"Authorization", b"Bearer sk-CANARY-123"),
    )


@pytest.mark.parametrize("name", [b"Content_Length", b"content.length", b"CONTENT_LENGTH"])
def test_a_second_spelling_of_content_length_does_not_travel(name: bytes) -> None:
    head = sent((b"content-LENGTH", b"3"), (name, b"0"))
    assert others(head) == [(b"content-LENGTH", b"3")]


@pytest.mark.parametrize(
    ("host", "port", "scheme", "value"),
    [
        ("api.example.com", 443, Scheme.HTTPS, b"api.example.com"),
        ("api.example.com", 8443, Scheme.HTTPS, b"api.example.com:8443"),
        ("api.example.com", 80, Scheme.HTTPS, b"api.example.com:80"),
        ("127.0.0.1", 80, Scheme.HTTP, b"127.0.0.1"),
        ("127.0.0.1", 443, Scheme.HTTP, b"127.0.0.1:443"),
        ("[::1]", 443, Scheme.HTTPS, b"[::1]"),
        ("[::1]", 8080, Scheme.HTTP, b"[::1]:8080"),
    ],
)
def test_host_is_the_rules_with_a_port_that_is_not_the_default(
    host: str, port: int, scheme: Scheme, value: bytes
) -> None:
    route = InjectRoute("provider", parse_host(host), 80, port, scheme)
    head = sent((b"Host", b"evil.test:1"), (b"HOST", b"evil.test"), route=route)
    assert [header for header in head.headers if header[0].lower() == b"host"] == [(b"Host", value)]


@pytest.mark.parametrize(
    ("offered", "sent_on"),
    [
        ([], b"identity"),
        ([b""], b"identity"),
        ([b"br, zstd, deflate"], b"identity"),
        ([b"identity"], b"identity"),
        ([b"gzip"], b"identity, gzip"),
        ([b"br", b"GZip"], b"identity, gzip"),
        ([b"gzip, deflate, br, zstd"], b"identity, gzip"),
        ([b"x-gzip"], b"identity, gzip"),
        ([b"gzip;q=1.0, br;q=0.5"], b"identity, gzip"),
        ([b"br , gzip ; Q=0.001"], b"identity, gzip"),
        ([b"gzip;q=0"], b"identity"),
        ([b"gzip;q=0.000"], b"identity"),
        ([b"gzip;q=0., *"], b"identity"),
        ([b"*"], b"identity, gzip"),
        ([b"br, *;q=0.1"], b"identity, gzip"),
        ([b"*;q=0"], b"identity"),
        ([b"gzip, *;q=0"], b"identity, gzip"),
        ([b"gzip;q=nan"], b"identity"),
        ([b"gzip;q=1;q=0"], b"identity"),
        ([b"xgzip"], b"identity"),
        ([b"gzipx"], b"identity"),
    ],
)
def test_accept_encoding_is_reduced_to_what_the_guard_can_read(offered: list[bytes], sent_on: bytes) -> None:
    head = sent(*((b"accept-encoding", value) for value in offered), (b"Accept_Encoding", b"br"))
    assert [value for name, value in head.headers if b"ccept" in name] == [sent_on]


def test_a_rule_for_opaque_bodies_passes_the_clients_own_accept_encoding() -> None:
    own = [(b"X-A", b"1"), (b"accept-encoding", b"br;q=1, gzip"), (b"X-B", b"2")]
    head = sent(*own, route=OPAQUE)
    assert others(head) == own
    assert others(sent(route=OPAQUE)) == []


def test_without_a_credential_none_is_set() -> None:
    names = [name for name, _ in sent((b"Authorization", b"A"), credential=None).headers]
    assert names == [b"Host", b"Accept-Encoding"]


HEADER_NAMES = st.sampled_from(
    (
        *(b"Host", b"host", b"Authorization", b"x-api-key", b"X_Api_Key", b"Cookie", b"TE", b"a"),
        *(b"Content-Length", b"content_length", b"Connection", b"Transfer_Encoding", b"Proxy-X"),
        b"X-Other",
    )
)
HEADER_VALUES = st.sampled_from(
    [b"", b"A", b"close", b"host, authorization", b"content-length", b"x-other", b"gzip", b"7"]
)


@given(st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES)), st.sampled_from([ROUTE, OPAQUE]))
def test_whatever_the_client_sends_the_head_has_one_host_and_one_credential(
    headers: list[tuple[bytes, bytes]], route: InjectRoute
) -> None:
    head = sent(*headers, route=route)
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in head.headers)
    read = parse_head(b"POST " + head.target + b" HTTP/1.1\r\n" + lines + b"\r\n")
    assert read.headers == head.headers
    assert read.values(b"host") == (b"api.example.com",)
    assert read.values(b"authorization") == (b"Bearer sk-CANARY-123",)
    spellings = {name.lower().replace(b"_", b"-") for name, _ in head.headers}
    assert spellings <= {b"host", b"authorization", b"accept-encoding"} | {
        *(b"content-length", b"x-other", b"a")
    }
    lengths = tuple(value for name, value in headers if name.lower() == b"content-length")
    assert read.values(b"content-length") == lengths


def test_no_repr_shows_the_credential() -> None:
    credential = Credential(b"Authorization", "Bearer {secret}", source())
    for shown in (sent(), BEARER, credential, credential.current()):
        assert "CANARY" not in repr(shown)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("{secret}", b"sk-CANARY-123"),
        ("Bearer {secret}", b"Bearer sk-CANARY-123"),
        ('Token token="{secret}", v=%s', b'Token token="sk-CANARY-123", v=%s'),
    ],
)
def test_the_format_is_filled_in_and_nothing_else_in_it_evaluated(form: str, value: bytes) -> None:
    assert Credential(b"Authorization", form, source()).current().value() == value


def test_a_secret_with_the_place_in_it_is_not_filled_in_again() -> None:
    credential = Credential(b"Authorization", "Bearer {secret}", source("a{secret}b"))
    assert credential.current().value() == b"Bearer a{secret}b"


@pytest.mark.parametrize(
    "form",
    [
        "",
        "CANARY",
        "{secret}{secret}",
        "{ secret }",
        "{secret!r}",
        "{SECRET}",
        "CANARY {secret}\r\nX: 1",
        "CANARY {secret}\0",
        "CANARYé {secret}",
        " {secret}",
        "{secret} ",
    ],
)
def test_a_bad_format_is_refused_unquoted(form: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII with one") as refused:
        Credential(b"Authorization", form, source())
    assert "CANARY" not in str(refused.value)


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"X Y", b"X:", b"X\r\n", b"X\xff", b"Host", b"content_length", b"Transfer-Encoding"),
        *(b"connection", b"Accept-Encoding", b"Proxy-Authorization", b"proxy_x", b"Expect", b"TE"),
    ],
)
def test_a_header_that_cannot_carry_a_credential_is_refused(header: bytes) -> None:
    with pytest.raises(ValueError, match="cannot carry one"):
        Credential(header, "{secret}", source())


@given(SECRETS, PRINTABLE, PRINTABLE)
def test_a_checked_format_and_a_checked_secret_make_a_header_value(
    secret: str, before: str, behind: str
) -> None:
    form = f"{before}{{secret}}{behind}".strip(" ")
    if form.count("{secret}") == 1 and not {"{", "}"} & set(before + behind):
        value = Credential(b"X-Key", form, source(secret)).current().value()
        assert flaw(value.decode()) is None
        assert secret.encode() in value


def test_head_and_forms_of_one_request_are_of_one_secret() -> None:
    """A file may be rotated between the two: the guard must look for what was sent."""

    class Rotating:
        values = iter(("the-first", "the-second"))

        def current(self) -> Secret:
            return Secret(next(self.values))

    rotating: SecretSource = Rotating()
    held = Credential(b"Authorization", "{secret}", rotating).current()
    value = dict(sent(credential=held).headers)[b"Authorization"]
    assert value == b"the-first"
    assert value in secret_texts(held)


def held(secret: str, form: str = "{secret}") -> HeldCredential:
    return HeldCredential(b"Authorization", form, Secret(secret))


def pair(text: bytes) -> str:
    return "Basic " + base64.b64encode(text).decode()


@pytest.mark.parametrize(
    ("credential", "texts"),
    [
        (held("sk-CANARY-123", "Bearer {secret}"), {b"Bearer sk-CANARY-123", b"sk-CANARY-123"}),
        (held("sk-CANARY-123"), {b"sk-CANARY-123"}),
        (held("Bearer sk-CANARY-123"), {b"Bearer sk-CANARY-123", b"sk-CANARY-123"}),
        (held("token  ghp_CANARY"), {b"token  ghp_CANARY", b"ghp_CANARY"}),
        (held("Digest a=1 b=CANARY"), {b"Digest a=1 b=CANARY", b"a=1 b=CANARY"}),
        (
            held(pair(b"user:CANARY-123")),
            {b"Basic dXNlcjpDQU5BUlktMTIz", b"dXNlcjpDQU5BUlktMTIz", b"user:CANARY-123", b"CANARY-123"},
        ),
        (
            held("dXNlcjpDQU5BUlktMTIz", "basic {secret}"),
            {b"basic dXNlcjpDQU5BUlktMTIz", b"dXNlcjpDQU5BUlktMTIz", b"user:CANARY-123", b"CANARY-123"},
        ),
        (held("Basic not:base64"), {b"Basic not:base64", b"not:base64"}),
        # The password is short: the pair and what is sent are looked for all the same.
        (held(pair(b"user:no")), {b"Basic dXNlcjpubw==", b"dXNlcjpubw=="}),
        (held("Bearer ollama"), set()),
        (held("changeme", "Bearer {secret}"), set()),
    ],
)
def test_what_is_looked_for_in_answers(credential: HeldCredential, texts: set[bytes]) -> None:
    assert set(secret_texts(credential)) == texts


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        ("ollama", "is shorter than 8 characters"),
        ("Bearer EMPTY", "is shorter than 8 characters"),
        ("Not_Needed", "is a common word"),
        ("Bearer ChangeMe", "is a common word"),
        ("sk-xxxxxxxxxxxx", "is one or two characters over and over"),
        ("user:no", "is shorter than 8 characters"),
        ("Bearer sk-CANARY-123", None),
    ],
)
def test_a_secret_that_cannot_be_looked_for_is_named_with_its_reason(secret: str, reason: str | None) -> None:
    assert unsearched(held(secret)) == reason


def test_a_short_password_of_basic_is_named() -> None:
    assert unsearched(held(pair(b"some-user:no"))) == "is shorter than 8 characters"


@pytest.mark.parametrize(
    "form",
    [
        "Basic {base64:u:{secret}}",
        "Bearer {{secret}}",
        "{secret} {other}",
        "{0.__class__} {secret}",
        "{secret}}",
    ],
)
def test_braces_that_mean_nothing_are_refused(form: str) -> None:
    with pytest.raises(ValueError, match="braces other than those of"):
        Credential(b"Authorization", form, source())


def test_a_source_from_the_environment_serves_a_credential() -> None:
    opened = open_source(parse_source("env:KEY"), {"KEY": SECRET})
    credential = Credential(b"X-Key", "{secret}", opened)
    assert credential.current().secret is opened.current()


OVERRIDES = [
    "X-HTTP-Method-Override",
    "x_http_method",
    "X-Method-Override",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Rewrite-URI",
    "X-Original-URI",
    "x_original_path",
    "X-Original-Method",
    "X-Forwarded-Uri",
    "X-Forwarded-Prefix",
    "X-Forwarded-Method",
    "X_Forwarded_Path",
    "X-Envoy-Original-Path",
    "X-Script-Name",
]


@pytest.mark.parametrize("limit", [{"methods": frozenset({"GET"})}, {"paths": (b"/v1",)}])
@pytest.mark.parametrize("name", OVERRIDES)
def test_a_limited_rule_lets_no_header_speak_for_method_or_path(name: str, limit: dict[str, Any]) -> None:
    head = RequestHead("GET", b"/v1", (1, 1), ((name.encode(), b"DELETE"), (b"X-Other", b"1")))
    route = InjectRoute("provider", parse_host("api.example.com"), **limit)
    names = [key for key, _ in Rewriter(route, None).rewrite(head, b"/v1").headers]
    assert b"X-Other" in names
    assert name.encode() not in names


def test_a_rule_without_limits_leaves_them_alone() -> None:
    head = RequestHead("GET", b"/v1", (1, 1), tuple((name.encode(), b"/x") for name in OVERRIDES))
    route = InjectRoute("provider", parse_host("api.example.com"))
    names = {key.decode() for key, _ in Rewriter(route, None).rewrite(head, b"/v1").headers}
    assert names >= set(OVERRIDES)
