"""The calls of contract section 5: what each answers, does, records and refuses."""

import dataclasses

import pytest

from control_api import routes
from egress_proxy.core.events import ControlRefused, EndCause, Granted, GrantEnded
from egress_proxy.core.host import host_text, parse_authority
from egress_proxy.core.rules import Ports, Rule, Suffix, parse_rule
from egress_proxy.core.seams import AuditUnavailable, ReloadRefused
from tests.control_api.control_service import NOW, ControlService, error_of

ENTRIES = [
    ("a.example", "a.example", "80,443"),
    ("A.Example.", "a.example", "80,443"),
    ("a.example:8443", "a.example", "8443"),
    ("a.example:*", "a.example", "*"),
    ("*.a.example", "*.a.example", "80,443"),
    ("**.A.example:443", "**.a.example", "443"),
    ("192.0.2.1", "192.0.2.1", "80,443"),
    ("127.0.0.1:11434", "127.0.0.1", "11434"),
    ("localhost:11434", "localhost", "11434"),
    ("[::1]:8080", "[::1]", "8080"),
    ("[2001:DB8:0::1]", "[2001:db8::1]", "80,443"),
    ("xn--bcher-kva.example", "xn--bcher-kva.example", "80,443"),
]
BAD_ENTRIES = [
    "",
    "*",
    "*.com",
    "**.com",
    "*.",
    "*.github.io",
    "a.*.example",
    "https://x.test",
    "x.test/",
    "x.test:99999",
    "x.test:0",
    "x.test:",
    "x.test:443:443",
    "x.test,y.test",
    " a.example",
    "a.example ",
    "a.example\t",
    "a.example\n",
    "a\n2026-01-01 INFO allowed evil.test",
    "a.example\u2028",
    "\x1b[2J",
    "\x00",
    "user@x.test",
    "bücher.example",
    "１２７.0.0.1",
    "127.1",
    "2130706433",
    "::1",
    "[::1",
    "[fe80::1%eth0]",
    "[a.example]",
    "-a.example",
    "a..example",
    "a" * 64 + ".example",
    "a." * 127 + "a",
]
NEVER = [
    "169.254.169.254",
    "169.254.169.254:*",
    "169.254.169.254:8080",
    "[::ffff:169.254.169.254]",
    "[fd00:ec2::254]",
    "100.100.100.200",
    "metadata.google.internal",
    "METADATA.google.internal.",
    "**.metadata.google.internal",
    "metadata:80",
    "127.0.0.1:8899",
    "localhost:8899",
    "[::ffff:127.0.0.1]:8899",
    "0.0.0.0:8080",
    "0.0.0.0:*",
    "[::]:8080",
    "224.0.0.1",
    "255.255.255.255",
    "[ff02::1]",
]


@pytest.mark.parametrize(("entry", "allowed", "ports"), ENTRIES)
async def test_an_entry_alone_is_answered_byte_for_byte_as_ever(
    control: ControlService, entry: str, allowed: str, ports: str
) -> None:
    response = await control.allow(host=entry)
    assert response.status == 200
    assert response.body == f'{{"allowed":"{allowed}","ports":"{ports}"}}'.encode()
    assert control.entries() == [allowed if ports == "80,443" else f"{allowed}:{ports}"]


@pytest.mark.parametrize("entry", BAD_ENTRIES)
async def test_what_is_no_entry_is_400_and_the_list_is_unchanged(control: ControlService, entry: str) -> None:
    response = await control.allow(host=entry)
    assert error_of(response) == (400, "bad-entry")
    assert control.entries() == []
    assert [event.status for event in control.refusals] == [400]


@pytest.mark.parametrize("entry", NEVER)
async def test_no_grant_is_made_for_what_can_never_be_dialled(control: ControlService, entry: str) -> None:
    response = await control.allow(host=entry)
    assert error_of(response) == (403, "blocked-by-address")
    asked = parse_rule(entry, lambda _: Suffix.NONE)
    assert response.json()["detail"].startswith(f"{host_text(asked.host)}:")
    assert control.entries() == []


DENIED = [
    ("ok.example", "ok.example"),
    ("ok.example", "ok.example:22"),
    ("ok.example", "ok.example:*"),
    ("ok.example:443", "ok.example"),
    ("ok.example:22", "OK.example.:22"),
    ("*.ok.example", "a.ok.example:8443"),
    ("**.ok.example", "ok.example"),
    ("*.ok.example", "*.ok.example"),
    ("**.ok.example", "*.ok.example:*"),
    ("**.ok.example", "**.ok.example"),
    ("*.ok.example", "**.a.ok.example"),
    ("192.0.2.1", "192.0.2.1"),
    ("192.0.2.1", "[::ffff:192.0.2.1]:22"),
    ("192.0.2.1", "[64:ff9b::192.0.2.1]"),
    ("[2001:db8::1]:443", "[2001:db8:0::1]"),
]
PARTLY_DENIED = [
    ("ok.example:22", "ok.example"),
    ("ok.example:443", "ok.example:*"),
    ("ok.example:443", "ok.example:80"),
    ("*.ok.example", "ok.example"),
    ("*.ok.example", "**.ok.example"),
    ("a.ok.example", "*.ok.example"),
    ("_.ok.example", "*.ok.example"),
    ("ok.example", "xok.example"),
    ("ok.example", "*.ok.example"),
    ("192.0.2.1", "192.0.2.2"),
    ("64.0.0.1", "*.0.0.1.example"),
]


def deny(entry: str, client: str | None = None) -> Rule:
    return parse_rule(entry, lambda _: Suffix.NONE, bare_ports=Ports.ANY, client=client)


@pytest.mark.parametrize(("denied", "asked"), DENIED)
async def test_a_grant_for_what_a_deny_entry_covers_is_refused_with_the_entry_named(
    control: ControlService, denied: str, asked: str
) -> None:
    control.deny = [deny("other.example"), deny(denied)]
    response = await control.allow(host=asked)
    assert error_of(response) == (403, "blocked-by-denylist")
    assert f"deny entry {denied}" in response.json()["detail"].replace(":* ", " ")
    assert control.entries() == []


@pytest.mark.parametrize(("denied", "asked"), PARTLY_DENIED)
async def test_a_grant_of_which_a_deny_entry_leaves_something_is_made(
    control: ControlService, denied: str, asked: str
) -> None:
    control.deny = [deny(denied)]
    assert (await control.allow(host=asked)).status == 200


async def test_a_deny_entry_for_one_client_refuses_grants_for_that_client_alone(
    control: ControlService,
) -> None:
    control.deny = [deny("ok.example", "build")]
    assert error_of(await control.allow(host="ok.example", client="build")) == (403, "blocked-by-denylist")
    assert (await control.allow(host="ok.example", client="ci")).status == 200
    assert (await control.allow(host="ok.example")).status == 200


@pytest.mark.parametrize("entry", ["127.0.0.1:*", "localhost:*"])
async def test_every_port_of_loopback_can_be_granted_though_some_are_ours(
    control: ControlService, entry: str
) -> None:
    assert (await control.allow(host=entry)).status == 200


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_the_control_port_is_our_own_although_nobody_says_so(
    control: ControlService, name: str
) -> None:
    assert error_of(await control.allow(host=f"{name}:{control.port}")) == (403, "blocked-by-address")


async def test_an_entry_for_the_web_ports_is_refused_when_one_of_them_is_ours(
    control: ControlService,
) -> None:
    control.own = [parse_authority("127.0.0.1:80")]
    assert error_of(await control.allow(host="127.0.0.1")) == (403, "blocked-by-address")
    assert (await control.allow(host="127.0.0.1:443")).status == 200


async def test_an_entry_for_all_ports_of_an_outer_host_is_no_matter_of_our_own(
    control: ControlService,
) -> None:
    assert (await control.allow(host="a.example:*")).status == 200
    assert (await control.allow(host="192.0.2.1:8899")).status == 200


def test_an_entry_for_all_ports_is_judged_even_if_no_port_is_ours() -> None:
    rule = parse_rule("0.0.0.0:*", lambda _: Suffix.NONE)
    assert list(routes._targets(rule))


async def test_a_limit_asked_for_is_kept_and_the_answer_then_names_the_grant(control: ControlService) -> None:
    response = await control.allow(
        host="a.example", ttl_s=1.5, max_uses=2, max_bytes_out=3, client="build", reason="why not"
    )
    (grant,) = control.grants.snapshot().by_id.values()
    assert response.json() == {
        "allowed": "a.example",
        "ports": "80,443",
        "id": grant.id,
        "expires_at": NOW + 1.5,
    }
    assert (grant.expires_at, grant.uses_left, grant.bytes_left) == (NOW + 1.5, 2, 3)
    assert (grant.rule.client, grant.rule.reason, grant.rule.private) == ("build", "why not", False)


@pytest.mark.parametrize(
    "extra", [{"ttl_s": 5}, {"max_uses": 1}, {"max_bytes_out": 1}, {"client": "ci"}, {"reason": ""}]
)
async def test_any_further_field_brings_id_and_expiry(
    control: ControlService, extra: dict[str, object]
) -> None:
    answer = (await control.allow(host="a.example", **extra)).json()
    assert list(answer) == ["allowed", "ports", "id", "expires_at"]
    assert answer["expires_at"] == (NOW + 5 if "ttl_s" in extra else None)


async def test_a_grant_is_recorded_once_however_often_it_is_asked_for(control: ControlService) -> None:
    for _ in range(3):
        assert (await control.allow(host="a.example")).status == 200
    (grant,) = control.grants.snapshot().by_id.values()
    assert control.events == [Granted(grant.id, "a.example", None, None, None, "")]


async def test_a_limited_grant_is_another_one_each_time(control: ControlService) -> None:
    ids = {(await control.allow(host="a.example", max_uses=1)).json()["id"] for _ in range(3)}
    assert len(ids) == len(control.entries()) == 3


async def test_a_client_that_is_not_known_is_400_and_the_known_ones_are_named(
    control: ControlService,
) -> None:
    response = await control.allow(host="a.example", client="nobody")
    assert error_of(response) == (400, "unknown-client")
    assert "build, ci" in response.json()["detail"]
    control.clients = []
    assert "known: none" in (await control.allow(host="a.example", client="x")).json()["detail"]
    assert control.entries() == []


async def test_a_grant_that_cannot_be_recorded_is_not_made(control: ControlService) -> None:
    control.audit_fault = AuditUnavailable()
    assert error_of(await control.allow(host="a.example")) == (503, "audit-unavailable")
    assert control.entries() == []


async def test_a_grant_that_was_there_before_survives_an_audit_log_that_fails(
    control: ControlService,
) -> None:
    await control.allow(host="a.example")
    control.audit_fault = AuditUnavailable()
    assert (await control.allow(host="a.example")).status == 200
    assert control.entries() == ["a.example"]


async def test_grants_have_a_number_beyond_which_none_is_made(
    control: ControlService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "GRANT_LIMIT", 2)
    statuses = [(await control.allow(host=f"{name}.example")).status for name in "abc"]
    assert statuses == [200, 200, 409]
    assert len(control.entries()) == 2


async def test_grants_are_listed_with_what_is_left_of_them(control: ControlService) -> None:
    assert (await control.call("GET", "/grants")).json() == {"grants": []}
    asked = {"ttl_s": 60, "max_uses": 2, "max_bytes_out": 1000, "client": "ci", "reason": "a test"}
    grant_id = (await control.allow(host="*.a.example:8443", **asked)).json()["id"]
    control.grants.spend_use(grant_id)
    control.grants.spend_bytes(grant_id, 1)
    assert (await control.call("GET", "/grants")).json()["grants"] == [
        {
            "id": grant_id,
            "allowed": "*.a.example",
            "ports": "8443",
            "client": "ci",
            "reason": "a test",
            "created_at": NOW,
            "expires_at": NOW + 60,
            "uses_left": 1,
            "bytes_left": 999,
        }
    ]


async def test_a_grant_whose_time_is_over_is_not_listed(control: ControlService) -> None:
    await control.allow(host="a.example", ttl_s=60)
    await control.allow(host="b.example")
    control.now += 60
    grants = (await control.call("GET", "/grants")).json()["grants"]
    assert [grant["allowed"] for grant in grants] == ["b.example"]
    assert (await control.call("GET", "/status")).json()["grants"] == 1


async def test_revoking_takes_the_grant_closes_its_tunnels_and_is_recorded(control: ControlService) -> None:
    grant_id = (await control.allow(host="a.example", max_uses=9)).json()["id"]
    control.tunnels.resting = 3
    response = await control.call("DELETE", f"/grants/{grant_id}")
    assert response.status == 200
    assert response.json() == {"revoked": grant_id, "tunnels_closed": 3}
    assert control.tunnels.closed == [(grant_id, EndCause.GRANT_ENDED)]
    assert control.entries() == []
    assert control.events[1:] == [GrantEnded(grant_id, "a.example", "revoked", 3)]
    assert error_of(await control.call("DELETE", f"/grants/{grant_id}")) == (404, "unknown-grant")


async def test_revoking_what_is_no_grant_is_404_and_closes_nothing(control: ControlService) -> None:
    await control.allow(host="a.example")
    for part in ("g-0", "..", "%2e%2e", "x" * 500, "g-0;x", "%00"):
        assert error_of(await control.call("DELETE", f"/grants/{part}")) == (404, "unknown-grant")
    for path in ("/grants/", "/grants/a/b"):
        assert error_of(await control.call("DELETE", path)) == (404, "not-found")
    assert control.tunnels.closed == []
    assert control.entries() == ["a.example"]


async def test_revoking_takes_effect_even_if_it_cannot_be_recorded(control: ControlService) -> None:
    grant_id = (await control.allow(host="a.example", max_uses=9)).json()["id"]
    control.audit_fault = AuditUnavailable()
    response = await control.call("DELETE", f"/grants/{grant_id}")
    assert response.status == 200
    assert response.json() == {"revoked": grant_id, "tunnels_closed": 0, "recorded": False}
    assert control.entries() == []
    assert len(control.tunnels.closed) == 1


async def test_status_tells_what_the_service_is_doing(control: ControlService) -> None:
    await control.allow(host="a.example")
    assert (await control.call("GET", "/status")).json() == {
        "version": "1.2.3",
        "phase": "serving",
        "started_at": NOW - 60,
        "uptime_s": 60.0,
        "listeners": ["127.0.0.1:8899"],
        "on_miss": "hold",
        "rules": {"allow": 3, "deny": 2, "inject": 1},
        "tunnels": {"open": 7, "limit": 4096},
        "grants": 1,
        "audit": {"lost_lines": 0, "lost_since": None, "counting_refusals": False},
    }


async def test_a_clock_that_was_set_back_makes_no_negative_uptime(control: ControlService) -> None:
    control.now = NOW - 3600
    assert (await control.call("GET", "/status")).json()["uptime_s"] == 0


async def test_healthz_needs_no_token_and_tells_nothing(control: ControlService) -> None:
    response = await control.request("GET", "/healthz", [control.host])
    assert (response.status, response.json()) == (200, {"status": "ok"})
    assert control.events == []


async def test_a_reload_says_how_many_tunnels_it_closed(control: ControlService) -> None:
    control.reload_outcome = 4
    response = await control.call("POST", "/reload")
    assert (response.status, response.json()) == (200, {"tunnels_closed": 4})
    assert control.events == []  # the reload records itself


async def test_a_reload_of_bad_settings_is_422_with_what_is_wrong(control: ControlService) -> None:
    control.reload_outcome = ReloadRefused("line 3: unknown key 'alow'; did you mean 'allow'?\nline 9")
    response = await control.call("POST", "/reload", {})
    assert error_of(response) == (422, "reload-refused")
    assert response.json()["detail"] == "line 3: unknown key 'alow'; did you mean 'allow'?\\nline 9"


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/allow", ["POST"]),
        ("/reload", ["POST"]),
        ("/grants", ["GET", "HEAD"]),
        ("/status", ["GET", "HEAD"]),
        ("/healthz", ["GET", "HEAD"]),
        ("/grants/g-1", ["DELETE"]),
    ],
)
async def test_a_wrong_method_on_a_known_path_is_405_and_the_right_ones_are_named(
    control: ControlService, path: str, right: list[str]
) -> None:
    for method in {"GET", "PUT", "DELETE", "PATCH", "POST", "OPTIONS", "TRACE", "PROPFIND"} - set(right):
        response = await control.call(method, path)
        assert error_of(response) == (405, "method-not-allowed")
        assert response.value("Allow") == ", ".join(right)


@pytest.mark.parametrize("path", ["/grants", "/status", "/healthz"])
async def test_head_answers_like_get_without_the_body(control: ControlService, path: str) -> None:
    whole, bare = await control.call("GET", path), await control.call("HEAD", path)
    assert (bare.status, bare.body) == (200, b"")
    assert bare.value("Content-Length") == whole.value("Content-Length")


async def test_every_refusal_is_recorded_once_and_on_one_line(control: ControlService) -> None:
    await control.call("GET", "/" + "x" * 3000)
    await control.call("GET", "/%0a%1b[2J?token=secret")
    await control.call("POST", "/allow", {"host": "a\n2026-01-01 INFO allowed evil.test"})
    long, escaped, forged = control.refusals
    assert len(control.events) == 3
    assert len(long.path) == 200
    assert (escaped.path, escaped.status) == ("/%0a%1b[2J", 404)
    assert (forged.method, forged.path, forged.status) == ("POST", "/allow", 400)
    for event in (long, escaped, forged):
        assert isinstance(event, ControlRefused)
        assert event.peer.startswith("127.0.0.1:")
        assert all(str(value).isprintable() for value in dataclasses.asdict(event).values())
        assert "evil" not in repr(event)


async def test_an_answer_is_the_same_whether_or_not_a_query_follows_the_path(control: ControlService) -> None:
    assert (await control.call("GET", "/grants?x=1")).body == (await control.call("GET", "/grants")).body
