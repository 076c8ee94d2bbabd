"""Settings to Policy: entries become rules, [[inject]] becomes routes. No secret is read here.

A pure function of settings and the web tools' variable, so that `check` can ask it offline and a
reload can call it again. Next: secret_source.py (the credentials), core/policy.py (decides).
"""

from collections.abc import Collection, Iterator, Mapping

from egress_proxy.cli.inject_source import inject_routes
from egress_proxy.cli.scopes import check_client, client_names
from egress_proxy.core.policy import OnMiss, Policy, rule_index
from egress_proxy.core.rules import Ports, Rule, RuleError, parse_rule
from egress_proxy.core.sni_policy import SniPolicy
from egress_proxy.settings.load import Loaded
from egress_proxy.settings.origins import Key, SettingsError
from egress_proxy.settings.tree import TlsTable
from egress_proxy.suffixes import suffix_of

WEB_DOMAINS_VARIABLE = "STEERABLE_WEB_ALLOWED_DOMAINS"


def policy_of(loaded: Loaded, environ: Mapping[str, str]) -> Policy:
    """Raises SettingsError, which names the entry and where it stands."""
    settings = loaded.settings
    clients = client_names(loaded)
    allow = [*_allow_rules(loaded, clients), *_web_domains(environ)]
    return Policy(
        rule_index(allow),
        rule_index(list(_deny_rules(loaded, clients))),
        inject_routes(loaded, clients),
        OnMiss(settings.on_miss),
        _sni(settings.tls),
    )


def _sni(tls: TlsTable) -> SniPolicy:
    return SniPolicy(tls.sni_check, tls.require_sni, tls.only_tls_on_443)


def _allow_rules(loaded: Loaded, clients: Collection[str]) -> Iterator[Rule]:
    settings = loaded.settings
    for index, entry in enumerate(settings.allow):
        key = ("allow", index)
        check_client(loaded, (*key, "client"), entry.client, clients)
        yield _rule(
            loaded,
            (*key, "host"),
            entry.host,
            private=entry.private,
            shared=entry.shared,
            client=entry.client,
            reason=entry.reason,
        )
    for index, host in enumerate(settings.allow_private):
        yield _rule(loaded, ("allow_private", index), host, private=True)
    for index, host in enumerate(settings.allow_shared):
        yield _rule(loaded, ("allow_shared", index), host, shared=True)


def _deny_rules(loaded: Loaded, clients: Collection[str]) -> Iterator[Rule]:
    for index, entry in enumerate(loaded.settings.deny):
        key = ("deny", index)
        check_client(loaded, (*key, "client"), entry.client, clients)
        # A domain of many tenants is not too much to forbid.
        yield _rule(
            loaded,
            (*key, "host"),
            entry.host,
            bare_ports=Ports.ANY,
            shared=True,
            client=entry.client,
            reason=entry.reason,
        )


def _rule(
    loaded: Loaded,
    key: Key,
    text: str,
    *,
    bare_ports: Ports = Ports.WEB,
    private: bool = False,
    shared: bool = False,
    client: str | None = None,
    reason: str = "",
) -> Rule:
    try:
        return parse_rule(
            text,
            suffix_of,
            bare_ports=bare_ports,
            private=private,
            shared=shared,
            client=client,
            reason=reason,
        )
    except RuleError as error:
        raise SettingsError(f"{error} ({loaded.merged.origin(key).text})") from None


def _web_domains(environ: Mapping[str, str]) -> Iterator[Rule]:
    """The web tools' list: a domain stands for itself and all below it."""
    for domain in environ.get(WEB_DOMAINS_VARIABLE, "").split(","):
        text = domain.strip(" \t")
        if not text:
            continue
        try:
            yield parse_rule(f"**.{text}", suffix_of, reason=WEB_DOMAINS_VARIABLE)
        except RuleError as error:
            raise SettingsError(f"{WEB_DOMAINS_VARIABLE}: {error}") from None
