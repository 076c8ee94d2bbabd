"""Rules of core/reply.py: the status line, headers and body of every refusal, as the contract has them.

When which reason is given is in test_policy.py and test_dial_policy.py.
"""

import json
import re

import h11
import pytest

from egress_proxy.core.decision import Ask, Deny, Reason
from egress_proxy.core.host import parse_authority
from egress_proxy.core.reply import ESTABLISHED, Reply, hint_for, refuse, unanswered

TARGET = parse_authority("Ok.example.:8443")


def header_lines(reply: Reply) -> dict[str, str]:
    lines = reply.head.decode().split("\r\n")[1:-2]
    pairs = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    assert len({name.lower() for name, _ in pairs}) == len(pairs)
    return dict(pairs)


def status_line(reply: Reply) -> str:
    return reply.head.decode().partition("\r\n")[0]


def test_a_tunnel_is_answered_with_no_more_than_the_status() -> None:
    assert ESTABLISHED == b"HTTP/1.1 200 Connection Established\r\n\r\n"


@pytest.mark.parametrize(
    ("authority", "shown"),
    [("OK.example.:443", "ok.example:443"), ("my_host:8080", "my_host:8080"),
     ("192.0.2.1:80", "192.0.2.1:80"), ("[2001:DB8:0::1]:443", "[2001:db8::1]:443"),
     ("::1:443", "[::1]:443")],
)  # fmt: skip
def test_a_refused_connect_names_the_target_in_its_status_line(authority: str, shown: str) -> None:
    reply = refuse(Deny(Reason.NOT_LISTED, parse_authority(authority)), "r1")
    assert status_line(reply) == f"HTTP/1.1 403 Forbidden; egress denied for {shown}"


STATUS = {
    400: {Reason.MALFORMED, Reason.NOT_HTTP},
    403: {Reason.NOT_LISTED, Reason.GRANT_EXHAUSTED, Reason.DENIED_BY_RULE, Reason.METADATA,
          Reason.ADDRESS_NOT_PUBLIC, Reason.OWN_LISTENER, Reason.APPROVAL_DENIED,
          Reason.APPROVAL_TIMEOUT, Reason.INJECT_OTHER_TARGET, Reason.INJECT_METHOD,
          Reason.INJECT_PATH, Reason.SNI_MISMATCH, Reason.SNI_MISSING, Reason.NOT_TLS},
    405: {Reason.METHOD_NOT_ALLOWED},
    407: {Reason.CLIENT_UNKNOWN},
    408: {Reason.HEAD_TIMEOUT},
    417: {Reason.EXPECTATION},
    431: {Reason.HEAD_TOO_LARGE},
    500: {Reason.INTERNAL},
    501: {Reason.CHUNKED_BODY, Reason.UPGRADE},
    502: {Reason.NO_SUCH_NAME, Reason.UPSTREAM_REFUSED, Reason.UPSTREAM_TLS,
          Reason.UPSTREAM_PROTOCOL, Reason.BODY_NOT_INSPECTABLE, Reason.SECRET_UNAVAILABLE},
    503: {Reason.TOO_MANY_TUNNELS, Reason.DRAINING, Reason.AUDIT_UNAVAILABLE},
    504: {Reason.UPSTREAM_TIMEOUT},
}  # fmt: skip
CODES = {
    Reason.NOT_LISTED: "blocked-by-allowlist",
    Reason.GRANT_EXHAUSTED: "blocked-by-allowlist",
    Reason.DENIED_BY_RULE: "blocked-by-denylist",
    Reason.METADATA: "blocked-by-address",
    Reason.ADDRESS_NOT_PUBLIC: "blocked-by-address",
    Reason.OWN_LISTENER: "blocked-by-address",
    Reason.INJECT_METHOD: "blocked-by-method-policy",
    Reason.INJECT_PATH: "blocked-by-method-policy",
    Reason.INJECT_OTHER_TARGET: "blocked-by-policy",
    Reason.APPROVAL_DENIED: "approval-denied",
    Reason.APPROVAL_TIMEOUT: "approval-timeout",
    Reason.MALFORMED: "bad-request",
    Reason.UPSTREAM_REFUSED: "upstream-unreachable",
    Reason.NO_SUCH_NAME: "upstream-unreachable",
    Reason.UPSTREAM_TIMEOUT: "upstream-timeout",
    # The contract leaves the rest to us; hosts read them all the same.
    Reason.NOT_HTTP: "bad-request",
    Reason.HEAD_TOO_LARGE: "head-too-large",
    Reason.HEAD_TIMEOUT: "head-timeout",
    Reason.METHOD_NOT_ALLOWED: "method-not-allowed",
    Reason.CLIENT_UNKNOWN: "client-authentication-required",
    Reason.CHUNKED_BODY: "chunked-not-supported",
    Reason.EXPECTATION: "expectation-failed",
    Reason.UPGRADE: "upgrade-not-supported",
    Reason.SNI_MISMATCH: "blocked-by-policy",
    Reason.SNI_MISSING: "blocked-by-policy",
    Reason.NOT_TLS: "blocked-by-policy",
    Reason.UPSTREAM_TLS: "upstream-tls",
    Reason.UPSTREAM_PROTOCOL: "upstream-protocol",
    Reason.BODY_NOT_INSPECTABLE: "body-not-inspectable",
    Reason.SECRET_UNAVAILABLE: "secret-unavailable",
    Reason.TOO_MANY_TUNNELS: "too-many-tunnels",
    Reason.DRAINING: "draining",
    Reason.AUDIT_UNAVAILABLE: "audit-unavailable",
    Reason.INTERNAL: "internal-error",
}


@pytest.mark.parametrize(
    ("status", "reason"), [(s, r) for s, reasons in STATUS.items() for r in sorted(reasons)]
)
def test_the_status_of_a_reason(status: int, reason: Reason) -> None:
    assert refuse(Deny(reason, TARGET), "r1").status == status


def test_status_and_code_of_every_reason_are_held_above() -> None:
    assert set().union(*STATUS.values()) == CODES.keys() == set(Reason)


@pytest.mark.parametrize(("reason", "code"), CODES.items())
def test_the_code_of_a_reason_is_stable(reason: Reason, code: str) -> None:
    reply = refuse(Deny(reason, TARGET), "r1")
    assert reply.code == header_lines(reply)["X-Proxy-Error"] == json.loads(reply.body)["error"] == code


@pytest.mark.parametrize("deny", [Deny(reason, target) for reason in Reason for target in (None, TARGET)])
def test_every_refusal_is_a_whole_answer_that_ends_the_connection(deny: Deny) -> None:
    reply = refuse(deny, "r1")
    lines = header_lines(reply)
    assert re.fullmatch(r"HTTP/1\.1 [45]\d\d [A-Z][A-Za-z0-9 ;:._-]+", status_line(reply))
    assert lines["Content-Length"] == str(len(reply.body))
    assert lines["Content-Type"] == "application/json"
    assert lines["Connection"] == "close"
    assert lines["X-Proxy-Error"] == reply.code
    assert "egress denied for" not in status_line(reply) or (reply.status == 403 and deny.target is not None)


@pytest.mark.parametrize("reason", Reason)
def test_an_http_client_reads_the_refusal_to_its_end(reason: Reason) -> None:
    reply = refuse(Deny(reason, TARGET, "ok.example"), "r1")
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="http://ok.example/", headers=[("Host", "ok.example")]))
    client.send(h11.EndOfMessage())
    client.receive_data(reply.head + reply.body)
    response, body, end = (client.next_event() for _ in range(3))
    assert isinstance(response, h11.Response)
    assert response.status_code == reply.status
    assert isinstance(body, h11.Data)
    assert bytes(body.data) == reply.body
    assert isinstance(end, h11.EndOfMessage)
    assert client.trailing_data == (b"", False)


def test_the_body_says_what_was_refused_why_and_what_to_do() -> None:
    deny = Deny(Reason.DENIED_BY_RULE, TARGET, "**.example:*", "a detail")
    assert json.loads(refuse(deny, "r-17").body) == {
        "error": "blocked-by-denylist",
        "reason": "denied_by_rule: a detail",
        "host": "ok.example",
        "port": 8443,
        "rule": "**.example:*",
        "request_id": "r-17",
        "hint": "the deny entry **.example:* forbids it",
    }


def test_the_body_has_the_same_fields_where_no_target_was_read() -> None:
    body = json.loads(refuse(Deny(Reason.MALFORMED), "r1").body)
    assert body.keys() == {"error", "reason", "host", "port", "rule", "request_id", "hint"}
    assert (body["host"], body["port"], body["rule"], body["reason"]) == (None, None, None, "malformed")


def test_an_ipv6_host_is_bracketed_in_the_body() -> None:
    assert (
        json.loads(refuse(Deny(Reason.NOT_LISTED, parse_authority("::1:443")), "r1").body)["host"] == "[::1]"
    )


def test_each_status_has_the_header_that_http_asks_for() -> None:
    extra = {
        405: ("Allow", "CONNECT"),
        407: ("Proxy-Authenticate", 'Basic realm="egress"'),
        503: ("Retry-After", "1"),
    }
    for reason in Reason:
        reply = refuse(Deny(reason, TARGET), "r1")
        lines = header_lines(reply)
        for status, (name, value) in extra.items():
            assert lines.get(name) == (value if reply.status == status else None)


def test_the_hint_names_the_target_and_the_rule() -> None:
    assert "`egress-proxy allow ok.example:8443`" in hint_for(Deny(Reason.NOT_LISTED, TARGET))
    assert "--allow ok.example:8443" in hint_for(Deny(Reason.APPROVAL_TIMEOUT, TARGET))
    assert "inject:api" in hint_for(Deny(Reason.INJECT_METHOD, TARGET, "inject:api"))


@pytest.mark.parametrize("reason", Reason)
def test_no_hint_is_left_unfilled(reason: Reason) -> None:
    for deny in (Deny(reason), Deny(reason, TARGET, "inject:{target}")):
        assert "{rule}" not in hint_for(deny)
        assert "{target}" not in hint_for(deny).replace("inject:{target}", "")


@pytest.mark.parametrize("text", ["x\r\nInjected: yes", "\x1b[2J", "\u2028", 'quote"', "b\u00fccher"])
def test_nothing_that_is_told_can_break_out_of_the_body(text: str) -> None:
    reply = refuse(Deny(Reason.SNI_MISMATCH, TARGET, text, text), text)
    assert reply.body.isascii()
    line = reply.body.decode().removesuffix("\n")
    assert line.isprintable()
    assert reply.body == f"{line}\n".encode()
    assert header_lines(reply).keys() == {"Content-Type", "Content-Length", "X-Proxy-Error", "Connection"}
    assert json.loads(reply.body)["request_id"] == text


def test_a_question_without_anybody_to_ask_is_a_miss() -> None:
    assert unanswered(Ask(TARGET)) == Deny(Reason.NOT_LISTED, TARGET)
