"""Credential rules to routes: those of [[inject]], and the single one of the --inject-* flags.

Routes hold no secret; secret_source.py reads those. Next: core/access.py (InjectRoute),
policy_source.py (the rest of the policy).
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from egress_proxy.cli.scopes import check_client
from egress_proxy.core.access import InjectRoute, Scheme
from egress_proxy.core.host import NAME_LIMIT, Host, HostError, Name, Target, parse_host
from egress_proxy.core.request import path_has_dot_segments
from egress_proxy.settings.load import Loaded
from egress_proxy.settings.origins import Key, SettingsError
from egress_proxy.settings.tree import InjectEntry

FLAG_RULE = "default"
"""The name of the rule that the --inject-* flags make."""

_FLAG_KEYS: dict[str, Key] = {
    "name": ("inject_host",),
    "host": ("inject_host",),
    "secret": ("inject_secret_env",),
    "header": ("inject_header",),
    "scheme": ("inject_scheme",),
    "upstream_port": ("inject_port",),
}
_SHOWN = 60  # characters of a host that is longer than any
_METHOD = re.compile(r"[A-Z][A-Z0-9_-]{0,31}")
_NEVER_INJECTED = ("CONNECT", "TRACE")
# No query: what a rule admits is a path and all below it.
_PATH = re.compile(r"/[\x21-\x7e]*")


@dataclass(frozen=True, slots=True)
class InjectRule:
    """One rule as it was written. ``key`` is its place in the tree, None: the flags'."""

    entry: InjectEntry
    key: Key | None

    def error(self, loaded: Loaded, field: str, predicate: str) -> SettingsError:
        key = _FLAG_KEYS[field] if self.key is None else (*self.key, field)
        return loaded.error(key, predicate)


def inject_rules(loaded: Loaded) -> tuple[InjectRule, ...]:
    """All rules, the flags' first. Raises SettingsError when the flags are half a rule."""
    written = [InjectRule(e, ("inject", i)) for i, e in enumerate(loaded.settings.inject)]
    flags = _flag_rule(loaded)
    return tuple(written) if flags is None else (flags, *written)


def useless_flags(loaded: Loaded) -> Iterator[str]:
    """A warning for each --inject-* that has no rule to belong to."""
    settings = loaded.settings
    for name in ("inject_header", "inject_scheme", "inject_port"):
        if settings.inject_host is None and getattr(settings, name) is not None:
            yield f"{loaded.origin(name).text} has no effect without --inject-host"


def _flag_rule(loaded: Loaded) -> InjectRule | None:
    settings = loaded.settings
    host, variable = settings.inject_host, settings.inject_secret_env
    if host is None and variable is None:
        return None
    if host is None or variable is None:
        given, other = ("inject_secret_env", "host") if host is None else ("inject_host", "secret-env")
        raise loaded.error((given,), f"needs --inject-{other} too: a rule is a host and its secret")
    entry = InjectEntry(
        name=FLAG_RULE,
        host=host,
        secret=f"env:{variable}",
        header=settings.inject_header or "Authorization",
        scheme=settings.inject_scheme or "https",
        upstream_port=settings.inject_port,
    )
    return InjectRule(entry, None)


def inject_routes(loaded: Loaded, clients: Collection[str]) -> tuple[InjectRoute, ...]:
    """Raises SettingsError, also for a rule that another one always gets ahead of."""
    by_name: dict[str, InjectRoute] = {}
    by_place: dict[tuple[Target, str | None], InjectRoute] = {}
    for rule in inject_rules(loaded):
        route = _route(loaded, rule)
        check_client(loaded, (*(rule.key or ()), "client"), route.client, clients)
        if route.name in by_name:
            raise rule.error(loaded, "name", f"is taken: another rule is called {route.name}")
        for client in (None, route.client):
            earlier = by_place.get((route.named, client))
            if earlier is not None:
                raise rule.error(loaded, "host", f"and its port are taken by rule {earlier.name}")
        by_name[route.name] = by_place[route.named, route.client] = route
    return tuple(by_name.values())


def _route(loaded: Loaded, rule: InjectRule) -> InjectRoute:
    entry = rule.entry
    host, scheme = _host(loaded, rule), Scheme(entry.scheme)
    if scheme is Scheme.HTTP and not _is_loopback(host):
        raise rule.error(
            loaded, "scheme", "may be http to a loopback host only: the credential goes in clear"
        )
    if scheme is Scheme.HTTPS and entry.secret is None:
        raise rule.error(loaded, "secret", 'is missing: only scheme = "http" can do without')
    return InjectRoute(
        entry.name,
        host,
        entry.port,
        entry.upstream_port or scheme.default_port,
        scheme,
        _methods(loaded, rule),
        _paths(loaded, rule),
        entry.client,
        entry.opaque_bodies,
    )


def _host(loaded: Loaded, rule: InjectRule) -> Host:
    text = rule.entry.host
    try:
        return parse_host(text)
    except HostError:
        shown = repr(text if len(text) <= NAME_LIMIT else text[:_SHOWN] + "…")
        words = f"must be one host, without port or star, IPv6 in brackets, and not {shown}"
        raise rule.error(loaded, "host", words) from None


def _is_loopback(host: Host) -> bool:
    return host.text == "localhost" if isinstance(host, Name) else host.is_loopback


def _methods(loaded: Loaded, rule: InjectRule) -> frozenset[str]:
    for method in rule.entry.methods:
        if not _METHOD.fullmatch(method) or method in _NEVER_INJECTED:
            raise rule.error(loaded, "methods", "may hold methods in capitals, but neither CONNECT nor TRACE")
    return frozenset(rule.entry.methods)


def _paths(loaded: Loaded, rule: InjectRule) -> tuple[bytes, ...]:
    for path in rule.entry.paths:
        plain = _PATH.fullmatch(path) and not {"?", "#"} & set(path)
        if not plain or path_has_dot_segments(path.encode()):
            raise rule.error(loaded, "paths", "must begin with / and hold neither query nor dot segments")
    return tuple(path.encode() for path in rule.entry.paths)
