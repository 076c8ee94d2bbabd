"""Rules of who a request comes from: one token, of one header, and a label that is for the eye alone.

Heads are read by the product's own grammar; over a connection this is in the end-to-end tests.
See egress_proxy/proxy/client_tokens.py.
"""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.access import ANONYMOUS, Client
from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.request import RequestHead, parse_head
from egress_proxy.proxy.client_tokens import LABEL_LIMIT, ClientTokens
from egress_proxy.vault.secret import Secret

UNKNOWN = Deny(Reason.CLIENT_UNKNOWN)
SHARED, BUILD, TESTS = "shared-token", "build-token", "tests:token"
TOKENS = ClientTokens(Secret(SHARED), {"build": Secret(BUILD), "tests": Secret(TESTS)})


def head(*values: bytes, name: bytes = b"Proxy-Authorization") -> RequestHead:
    fields = b"".join(name + b": " + value + b"\r\n" for value in values)
    return parse_head(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n" + fields + b"\r\n")


def basic(user: str | bytes, token: str) -> bytes:
    raw = user if isinstance(user, bytes) else user.encode()
    return b"Basic " + base64.b64encode(raw + b":" + token.encode())


def bearer(token: str) -> bytes:
    return b"Bearer " + token.encode()


# Without tokens


@pytest.mark.parametrize("values", [(), (basic("agent", "x"),), (b"nonsense",), (b"a", b"b")])
def test_without_tokens_everybody_is_anonymous_whatever_is_sent(values: tuple[bytes, ...]) -> None:
    assert ClientTokens().identify(head(*values)) == Client(ANONYMOUS, "")


# With tokens


@pytest.mark.parametrize(
    ("value", "client"),
    [
        (bearer(BUILD), Client("build")),
        (bearer(TESTS), Client("tests")),
        (bearer(SHARED), Client(ANONYMOUS)),
        (basic("agent", BUILD), Client("build", "agent")),
        (basic("agent", TESTS), Client("tests", "agent")),  # only the first colon parts user and token
        (basic("agent", SHARED), Client(ANONYMOUS, "agent")),
        (basic("", SHARED), Client(ANONYMOUS, "")),
        (basic("build", SHARED), Client(ANONYMOUS, "build")),  # a name that is claimed is a label, no more
        (basic("tests", BUILD), Client("build", "tests")),
        (b"bEARER  " + BUILD.encode(), Client("build")),
        (b"basic   " + basic("a", BUILD).removeprefix(b"Basic "), Client("build", "a")),
    ],
)
def test_the_token_says_who_it_is_and_the_user_name_is_shown(value: bytes, client: Client) -> None:
    assert TOKENS.identify(head(value)) == client


def test_the_name_of_the_header_is_read_in_any_case() -> None:
    assert TOKENS.identify(head(bearer(BUILD), name=b"PROXY-authorization")) == Client("build")


@pytest.mark.parametrize(
    "values",
    [
        (),
        (b"",),
        (b"Bearer",),
        (b"Bearer ",),
        (bearer("wrong"),),
        (bearer(BUILD + "x"),),
        (bearer(BUILD[:-1]),),
        (bearer(BUILD.upper()),),
        (bearer(BUILD) + b",",),
        (b'Bearer "' + BUILD.encode() + b'"',),
        (BUILD.encode(),),
        (b"Token " + BUILD.encode(),),
        (b"Bearer\t" + BUILD.encode(),),
        (basic("agent", "wrong"),),
        (basic("agent", ""),),
        (basic("agent", "token"),),
        (b"Basic " + base64.b64encode(BUILD.encode()),),  # no colon
        (b"Basic " + basic("agent", BUILD)[6:-1],),  # cut
        (b"Basic " + basic("agent", BUILD)[6:] + b"!",),
        (b"Basic " + basic("agent", BUILD)[6:].replace(b"Z", b"Z "),),
        (b"Basic agent:" + BUILD.encode(),),
        (b"Basic \xff\xfe",),
        (b"Digest username=agent",),
        (bearer(BUILD), bearer(BUILD)),  # two lines: a proxy before us might look at the other one
        (basic("a", "wrong"), basic("a", BUILD)),
        (basic("a", BUILD), basic("a", "wrong")),
    ],
)
def test_anything_but_one_good_credential_is_refused(values: tuple[bytes, ...]) -> None:
    assert TOKENS.identify(head(*values)) == UNKNOWN


def test_other_headers_identify_nobody() -> None:
    for name in (b"Authorization", b"Proxy_Authorization", b"X-Proxy-Authorization", b"Cookie"):
        assert TOKENS.identify(head(bearer(BUILD), name=name)) == UNKNOWN


def test_with_own_tokens_alone_the_shared_one_is_nobodys() -> None:
    tokens = ClientTokens(own={"build": Secret(BUILD)})
    assert tokens.identify(head(bearer(SHARED))) == UNKNOWN
    assert tokens.identify(head(bearer(BUILD))) == Client("build")
    assert tokens.identify(head()) == UNKNOWN


def test_with_the_shared_token_alone_nobody_has_a_name() -> None:
    tokens = ClientTokens(Secret(SHARED))
    assert tokens.identify(head(basic("build", SHARED))) == Client(ANONYMOUS, "build")
    assert tokens.identify(head(basic("build", BUILD))) == UNKNOWN


@pytest.mark.parametrize("value", [bearer(BUILD), bearer(TESTS), bearer(SHARED), bearer("wrong"), bearer("")])
def test_every_token_is_compared_whoever_comes(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Secret] = []
    holds = Secret.holds

    def counted(secret: Secret, value: bytes) -> bool:
        compared.append(secret)
        return holds(secret, value)

    monkeypatch.setattr(Secret, "holds", counted)
    TOKENS.identify(head(value))
    assert compared == [*TOKENS.own.values(), TOKENS.shared]


# Labels


@pytest.mark.parametrize(
    ("user", "label"),
    [
        (b"agent 7 <a@b>", "agent 7 <a@b>"),
        (b"a\nb\rc\x00d", "a?b?c?d"),
        (b"\x1b[2J\x7f", "?[2J?"),
        ("ü".encode(), "??"),
        (b"\xff", "?"),
        ("\u2028".encode(), "???"),
        (b"a" * (LABEL_LIMIT + 1), "a" * LABEL_LIMIT),
    ],
)
def test_a_label_is_short_and_printable(user: bytes, label: str) -> None:
    assert TOKENS.identify(head(basic(user, SHARED))) == Client(ANONYMOUS, label)


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_whatever_is_sent_is_a_refusal_or_a_client_with_a_printable_label(user: bytes, token: bytes) -> None:
    given_user = user.replace(b":", b"")
    sent = b"Basic " + base64.b64encode(given_user + b":" + token)
    assert TOKENS.identify(head(sent)) == UNKNOWN
    client = TOKENS.identify(head(basic(given_user, SHARED)))
    assert isinstance(client, Client)
    assert client.id == ANONYMOUS
    assert client.label.isascii()
    assert client.label == "" or client.label.isprintable()


@given(st.binary(max_size=100))
def test_no_value_raises(value: bytes) -> None:
    visible = bytes(byte for byte in value if byte >= 0x20 and byte != 0x7F)
    for scheme in (b"", b"Basic ", b"Bearer "):
        assert TOKENS.identify(head(scheme + visible)) == UNKNOWN


def test_a_client_is_known_as_long_as_its_token_is() -> None:
    tokens = ClientTokens(own={"build": Secret("tok")})
    assert tokens.knows(Client("build"))
    assert not tokens.knows(Client("gone"))
    assert not tokens.knows(Client())
    assert ClientTokens().knows(Client())
    assert ClientTokens(Secret("tok")).knows(Client(label="me"))
