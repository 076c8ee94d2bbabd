"""Settings to a policy that decides: lists of all kinds, the web tools' list, and bad entries named."""

import pytest

from egress_proxy.cli.policy_source import WEB_DOMAINS_VARIABLE, policy_of
from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow, Deny, OptIn, Reason
from egress_proxy.core.grants import Grants
from egress_proxy.core.host import parse_authority
from egress_proxy.core.policy import Policy, decide
from egress_proxy.core.sni_policy import SniPolicy
from egress_proxy.settings.load import load
from egress_proxy.settings.origins import SettingsError, Text


def policy(environ: dict[str, str] | None = None, /, **flags: object) -> Policy:
    environ = environ or {}
    marked = {
        name: [Text(item) for item in value] if isinstance(value, list) else value
        for name, value in flags.items()
    }
    return policy_of(load(marked, environ), environ)


def decision(made: Policy, target: str, client: str = "anonymous") -> Allow | Deny:
    access = Access(Client(client), parse_authority(target), Door.TUNNEL)
    answer = decide(access, made, Grants(), 0)
    assert isinstance(answer, Allow | Deny)
    return answer


def test_a_bare_host_means_the_web_ports_and_a_denied_one_every_port() -> None:
    made = policy(allow=["a.example", "b.example:22"], deny=["d.a.example"])
    for target in ("a.example:443", "a.example:80", "b.example:22"):
        assert isinstance(decision(made, target), Allow)
    for target in ("a.example:22", "b.example:443", "c.example:443"):
        assert decision(made, target) == Deny(Reason.NOT_LISTED, parse_authority(target))
    refused = decision(policy(allow=["**.a.example"], deny=["d.a.example"]), "d.a.example:443")
    assert isinstance(refused, Deny)
    assert refused.reason is Reason.DENIED_BY_RULE


def test_private_and_shared_lists_give_what_their_names_say() -> None:
    made = policy(allow_private=["models.internal"], allow_shared=["*.github.io"])
    inward = decision(made, "models.internal:443")
    assert isinstance(inward, Allow)
    assert inward.opt_in is OptIn.INWARD
    assert isinstance(decision(made, "me.github.io:443"), Allow)


def test_a_wildcard_under_a_shared_domain_may_be_denied_without_more_words() -> None:
    refused = decision(policy(allow=["me.github.io"], deny=["*.github.io"]), "me.github.io:443")
    assert isinstance(refused, Deny)
    assert refused.reason is Reason.DENIED_BY_RULE


def test_an_entry_can_hold_for_one_client_alone() -> None:
    environ = {
        "EGRESS_CLIENT": '[{"name": "build", "token": "env:T"}]',
        "EGRESS_ALLOW": '[{"host": "a.example", "client": "build", "reason": "r"}]',
    }
    made = policy(environ)
    assert isinstance(decision(made, "a.example:443", "build"), Allow)
    assert isinstance(decision(made, "a.example:443"), Deny)


def test_the_web_tools_domains_stand_for_themselves_and_all_below() -> None:
    made = policy({WEB_DOMAINS_VARIABLE: "a.example, b.example ,"})
    for target in ("a.example:443", "x.y.a.example:443", "b.example:80"):
        assert isinstance(decision(made, target), Allow)
    assert isinstance(decision(made, "xa.example:443"), Deny)


@pytest.mark.parametrize(
    "text", ["co.uk", "https://a.example", "a.example b.example", "10.0.0.1", "*.a.example", "ä.example"]
)
def test_a_bad_web_domain_is_named_with_its_variable(text: str) -> None:
    with pytest.raises(SettingsError, match=f"^{WEB_DOMAINS_VARIABLE}: invalid entry"):
        policy({WEB_DOMAINS_VARIABLE: text})


@pytest.mark.parametrize("list_name", ["allow", "allow_private", "allow_shared", "deny"])
@pytest.mark.parametrize(
    "entry", ["a,b", "*", "*.com", "http://a.example", "a/b", "a:0", "a.*.b", "::1", "", "a b", "１.example"]
)
def test_a_bad_entry_is_named_with_its_flag(list_name: str, entry: str) -> None:
    with pytest.raises(SettingsError, match=r"^invalid entry") as refused:
        policy(None, **{list_name: [entry]})
    assert str(refused.value).endswith(f"(--{list_name.replace('_', '-')})")


def test_blanks_round_an_entry_are_trimmed() -> None:
    assert isinstance(decision(policy(allow=[" \ta.example "]), "a.example:443"), Allow)


def test_an_entry_for_an_unknown_client_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"deny\[0\]\.client names no"):
        policy({"EGRESS_DENY": '[{"host": "a.example", "client": "ci"}]'})


def test_the_sni_switches_reach_the_policy() -> None:
    environ = {"EGRESS_TLS__REQUIRE_SNI": "true", "EGRESS_TLS__ONLY_TLS_ON_443": "true"}
    assert policy(environ).sni == SniPolicy(True, True, True)
    assert policy(no_sni_check=True).sni == SniPolicy(False, False, False)
    assert policy().sni == SniPolicy()
