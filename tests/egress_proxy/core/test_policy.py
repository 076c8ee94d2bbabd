"""Rules of core/policy.py: who wins among metadata, deny, inject route, allow, grant and miss; and for whom.

Addresses are judged in test_dial_policy.py, TLS names in test_sni_policy.py.
"""

from ipaddress import ip_address

import pytest

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow, Ask, Deny, OptIn, Reason
from egress_proxy.core.dial_policy import METADATA_NAMES, judge_addresses
from egress_proxy.core.grants import Grants
from egress_proxy.core.host import parse_authority
from egress_proxy.core.policy import OnMiss, Policy, decide
from tests.egress_proxy.core.entries import (
    NOW,
    allow_entry,
    allowed,
    connect,
    deny_entry,
    grant,
    granted,
    policy,
    refused,
    tunnel,
)


def test_what_nobody_listed_is_refused() -> None:
    assert tunnel("ok.example:443", Policy()) == refused("ok.example:443", Reason.NOT_LISTED)
    listed = policy(allow=("ok.example",))
    for authority in ("evil.test:443", "ok.example:25", "a.ok.example:443", "1.2.3.4:443", "[::1]:443"):
        assert tunnel(authority, listed) == refused(authority, Reason.NOT_LISTED)


def test_what_is_listed_is_allowed_under_the_entrys_name() -> None:
    listed = policy(allow=("*.ok.example:8443", "ok.example", "git.example:22"))
    assert tunnel("OK.example.:443", listed) == allowed("ok.example:443", "ok.example")
    assert tunnel("a.b.ok.example:8443", listed) == allowed("a.b.ok.example:8443", "*.ok.example:8443")
    assert tunnel("git.example:22", listed) == allowed("git.example:22", "git.example:22")
    assert tunnel("git.example:443", listed) == refused("git.example:443", Reason.NOT_LISTED)


@pytest.mark.parametrize("deny", ["a.ok.example", "a.ok.example:443", "*.ok.example:443", "**.ok.example"])
@pytest.mark.parametrize("on_miss", OnMiss)
def test_a_deny_entry_wins_over_allow_grant_and_question(deny: str, on_miss: OnMiss) -> None:
    for allow in ((), ("a.ok.example", "**.ok.example:*")):
        rules = policy(allow=allow, deny=(deny,), on_miss=on_miss)
        answer = tunnel("a.ok.example:443", rules, granted("a.ok.example", "a.ok.example:443"))
        assert answer == refused("a.ok.example:443", Reason.DENIED_BY_RULE, str(deny_entry(deny)))


def test_a_bare_deny_entry_closes_every_port() -> None:
    rules = policy(allow=("ok.example:*",), deny=("ok.example",))
    for port in (1, 80, 443, 8443, 65535):
        denied = refused(f"ok.example:{port}", Reason.DENIED_BY_RULE, "ok.example:*")
        assert tunnel(f"ok.example:{port}", rules) == denied


def test_a_deny_entry_with_a_port_closes_that_port() -> None:
    rules = policy(allow=("ok.example:*",), deny=("ok.example:25",))
    assert tunnel("ok.example:25", rules) == refused("ok.example:25", Reason.DENIED_BY_RULE, "ok.example:25")
    assert tunnel("ok.example:26", rules) == allowed("ok.example:26", "ok.example:*")


@pytest.mark.parametrize("authority", ["[::ffff:192.0.2.1]:443", "[64:ff9b::192.0.2.1]:443",
                                       "[64:ff9b::c000:201]:443", "[2002:c000:201::1]:443",
                                       "[::192.0.2.1]:443", "::ffff:192.0.2.1:443"])  # fmt: skip
def test_a_denied_address_is_denied_in_every_spelling(authority: str) -> None:
    literal = authority.rpartition(":")[0]
    literal = literal if literal.startswith("[") else f"[{literal}]"
    rules = policy(allow=(literal,), deny=("192.0.2.1",))
    answer = tunnel(authority, rules, granted(literal))
    assert isinstance(answer, Deny)
    assert (answer.reason, answer.rule) == (Reason.DENIED_BY_RULE, "192.0.2.1:*")


def test_a_grant_lifts_a_miss() -> None:
    answer = tunnel("ok.example:443", Policy(), granted("ok.example"))
    assert answer == allowed("ok.example:443", "ok.example", grant_id="g0")


def test_an_allow_entry_is_asked_before_a_grant_so_that_no_use_is_spent() -> None:
    answer = tunnel("ok.example:443", policy(allow=("ok.example",)), granted("ok.example", max_uses=1))
    assert answer == allowed("ok.example:443", "ok.example")


def test_a_grant_opens_its_entry_and_nothing_beside_it() -> None:
    grants = granted("*.ok.example:8443")
    for authority in ("ok.example:8443", "a.ok.example:443", "xok.example:8443"):
        assert tunnel(authority, Policy(), grants) == refused(authority, Reason.NOT_LISTED)


def test_an_ended_grant_opens_nothing() -> None:
    access = connect("ok.example:443")
    for grants in (granted("ok.example", ttl_s=60), granted("ok.example", max_bytes_out=0)):
        assert decide(access, Policy(), grants, NOW + 60) == refused("ok.example:443", Reason.NOT_LISTED)


def test_a_spent_grant_says_so() -> None:
    grants = granted("ok.example", max_uses=0)
    assert tunnel("ok.example:443", Policy(), grants) == refused(
        "ok.example:443", Reason.GRANT_EXHAUSTED, "ok.example"
    )


def test_a_spent_grant_does_not_hide_one_with_uses_left() -> None:
    grants = granted("ok.example", max_uses=0).add(grant("h", "**.ok.example", max_uses=1))
    answer = tunnel("ok.example:443", Policy(), grants)
    assert answer == allowed("ok.example:443", "**.ok.example", grant_id="h")


def test_a_miss_is_put_to_a_person_where_the_settings_say_so() -> None:
    held = Policy(on_miss=OnMiss.HOLD)
    assert tunnel("ok.example:443", held) == Ask(parse_authority("ok.example:443"))


def test_a_person_is_asked_again_when_the_grant_is_spent() -> None:
    held = Policy(on_miss=OnMiss.HOLD)
    question = Ask(parse_authority("ok.example:443"))
    for grants in (granted("ok.example", max_uses=0), granted("ok.example", ttl_s=-1)):
        assert tunnel("ok.example:443", held, grants) == question


def test_nobody_is_asked_about_what_is_listed_granted_or_denied() -> None:
    held = policy(allow=("ok.example",), deny=("bad.example",), on_miss=OnMiss.HOLD)
    assert isinstance(tunnel("ok.example:443", held), Allow)
    assert isinstance(tunnel("new.example:443", held, granted("new.example")), Allow)
    assert tunnel("bad.example:443", held) == refused(
        "bad.example:443", Reason.DENIED_BY_RULE, "bad.example:*"
    )


METADATA = [f"{name}:80" for name in sorted(METADATA_NAMES)] + ["METADATA.Google.Internal.:80",
                                                                "169.254.169.254:80",
                                                                "[::ffff:169.254.169.254]:80",
                                                                "[fd00:ec2::254]:80",
                                                                "[64:ff9b::a9fe:a9fe]:80",
                                                                "168.63.129.16:32526",
                                                                "100.100.100.200:80"]  # fmt: skip


@pytest.mark.parametrize("authority", METADATA)
def test_metadata_is_refused_even_where_it_is_listed_and_granted(authority: str) -> None:
    host = authority.rpartition(":")[0]
    entries = (f"{host}:*", allow_entry(f"{host}:*", private=True))
    for on_miss in OnMiss:
        rules = policy(allow=entries, on_miss=on_miss)
        assert tunnel(authority, rules, granted(*entries)) == refused(authority, Reason.METADATA)


@pytest.mark.parametrize("name", ["metadata.google.internal", "instance-data.ec2.internal"])
def test_a_wildcard_does_not_open_metadata(name: str) -> None:
    parent = name.partition(".")[2]
    rules = policy(allow=(f"*.{parent}:*",))
    assert tunnel(f"{name}:80", rules) == refused(f"{name}:80", Reason.METADATA)
    assert isinstance(tunnel(f"other.{parent}:80", rules), Allow)


def test_an_entry_for_a_client_holds_for_that_client_alone() -> None:
    rules = policy(
        allow=(allow_entry("ok.example", client="build"), "all.example"),
        deny=(deny_entry("all.example", client="guest"),),
    )
    grants = granted(allow_entry("new.example", client="build"))
    for client in ("anonymous", "Build", "guest", ""):
        assert tunnel("ok.example:443", rules, grants, client) == refused("ok.example:443", Reason.NOT_LISTED)
        assert tunnel("new.example:443", rules, grants, client) == refused(
            "new.example:443", Reason.NOT_LISTED
        )
    assert isinstance(tunnel("ok.example:443", rules, grants, "build"), Allow)
    assert isinstance(tunnel("new.example:443", rules, grants, "build"), Allow)
    assert isinstance(tunnel("all.example:443", rules, client="build"), Allow)
    assert tunnel("all.example:443", rules, client="guest") == refused(
        "all.example:443", Reason.DENIED_BY_RULE, "all.example:*"
    )


def test_a_label_scopes_nothing() -> None:
    rules = policy(allow=(allow_entry("ok.example", client="build"),))
    access = Access(Client(label="build"), parse_authority("ok.example:443"), Door.TUNNEL)
    assert decide(access, rules, Grants(), NOW) == refused("ok.example:443", Reason.NOT_LISTED)


@pytest.mark.parametrize(
    ("entry", "authority", "opt_in"),
    [("ok.example", "ok.example:443", OptIn.NONE), ("*.ok.example", "a.ok.example:443", OptIn.NONE),
     ("localhost:3000", "localhost:3000", OptIn.LOOPBACK),
     ("127.0.0.1:3000", "127.0.0.1:3000", OptIn.LITERAL),
     ("[::1]:3000", "[::1]:3000", OptIn.LITERAL), ("10.0.0.1", "10.0.0.1:443", OptIn.LITERAL),
     ("*.localhost.example", "localhost.localhost.example:443", OptIn.NONE)],
)  # fmt: skip
def test_an_entry_opts_in_to_exactly_what_it_names(entry: str, authority: str, opt_in: OptIn) -> None:
    assert tunnel(authority, policy(allow=(entry,))) == allowed(authority, entry, opt_in)
    assert tunnel(authority, Policy(), granted(entry)) == allowed(authority, entry, opt_in, "g0")


@pytest.mark.parametrize("entry", ["db.example", "**.db.example", "localhost"])
def test_a_private_entry_opts_in_to_inward_answers(entry: str) -> None:
    host = entry.removeprefix("**.")
    rules = policy(allow=(allow_entry(entry, private=True),))
    assert tunnel(f"{host}:443", rules) == allowed(f"{host}:443", entry, OptIn.INWARD)


def test_of_two_entries_the_private_one_opts_in_and_without_one_the_closest_names_itself() -> None:
    wide = allow_entry("**.db.example", private=True)
    assert tunnel("db.example:443", policy(allow=("db.example", wide))) == allowed(
        "db.example:443", "**.db.example", OptIn.INWARD
    )
    both = policy(allow=("**.db.example", "db.example"))
    assert tunnel("db.example:443", both) == allowed("db.example:443", "db.example")


def test_a_private_entry_of_another_client_or_port_opts_in_to_nothing() -> None:
    rules = policy(
        allow=("db.example:*", allow_entry("db.example", private=True, client="build"),
               allow_entry("db.example:5432", private=True))
    )  # fmt: skip
    assert tunnel("db.example:443", rules) == allowed("db.example:443", "db.example:*")
    assert tunnel("db.example:443", rules, client="build") == allowed(
        "db.example:443", "db.example", OptIn.INWARD
    )


def test_a_grant_lifts_neither_a_deny_nor_an_address_refusal() -> None:
    grants = granted("ok.example:*", "inside.example")
    denied = tunnel("ok.example:443", policy(deny=("ok.example",)), grants)
    assert denied == refused("ok.example:443", Reason.DENIED_BY_RULE, "ok.example:*")
    answer = tunnel("inside.example:443", Policy(), grants)
    assert isinstance(answer, Allow)
    for address in ("127.0.0.1", "10.0.0.1", "169.254.1.1", "100.64.0.1"):
        judged = judge_addresses(answer, [ip_address(address)], (), ())
        assert isinstance(judged, Deny)
        assert judged.reason is Reason.ADDRESS_NOT_PUBLIC


def test_the_words_for_a_miss_are_those_of_the_settings() -> None:
    assert [*OnMiss] == ["deny", "hold"]


def test_a_policy_says_no_by_default() -> None:
    assert Policy().on_miss is OnMiss.DENY
    assert list(Policy().allow) == list(Policy().deny) == []
    assert Policy().routes == ()
    assert Policy().sni.check
