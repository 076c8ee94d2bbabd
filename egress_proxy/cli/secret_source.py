"""Secret references to secrets: credentials of the rules, tokens of clients, the control token.

Values are read by vault/sources.py and pass through here unseen. Next: vault/sources.py (how they
are read), hardening.py (takes them out of the environment).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from egress_proxy.cli.inject_source import InjectRule, inject_rules
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.settings.load import Loaded
from egress_proxy.settings.origins import Key
from egress_proxy.vault.injection import Credential, unsearched
from egress_proxy.vault.secret import Secret
from egress_proxy.vault.sources import (
    SecretSource,
    SecretUnavailable,
    SourceKind,
    SourceName,
    is_open_to_all,
    open_source,
    parse_source,
)

# Only to see whether a header or a format would do by itself.
_PLAIN_HEADER, _PLAIN_FORMAT = b"Authorization", "{secret}"


class SecretShelf:
    """Sources by name. A descriptor can be read once and a variable is wiped: both stay for a reload."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._held: dict[SourceName, SecretSource] = {}

    def open(self, name: SourceName) -> SecretSource:
        """Raises SecretUnavailable."""
        source = self._held.get(name)
        if source is None:
            source = open_source(name, self._environ)
            if name.kind is not SourceKind.FILE:
                self._held[name] = source
        return source


@dataclass(frozen=True, slots=True)
class Reference:
    """Where settings name a secret."""

    key: Key
    name: SourceName


@dataclass(frozen=True, slots=True)
class Secrets:
    """All that settings name. ``control`` is None where there is no control API."""

    credentials: Mapping[str, Credential]
    clients: ClientTokens
    control: Secret | None


def read_secrets(loaded: Loaded, shelf: SecretShelf) -> Secrets:
    """Read them all. Raises SettingsError, which names the source and holds no value."""
    control, shared, own = _tokens(loaded)
    return Secrets(
        dict(_credentials(loaded, shelf)),
        ClientTokens(
            None if shared is None else _secret(loaded, shared, shelf),
            {name: _secret(loaded, token, shelf) for name, token in own.items()},
        ),
        None if control is None else _secret(loaded, control, shelf),
    )


def source_names(loaded: Loaded) -> frozenset[SourceName]:
    """Where the secrets come from that settings name. Checks all references on the way."""
    control, shared, own = _tokens(loaded)
    tokens = [token for token in (control, shared, *own.values()) if token is not None]
    keys = [_checked(loaded, rule) for rule in inject_rules(loaded)]
    return frozenset(reference.name for reference in (*tokens, *keys) if reference is not None)


def variables_among(names: Iterable[SourceName]) -> frozenset[str]:
    """The environment variables that hold secrets, to be wiped."""
    return frozenset(name.rest for name in names if name.kind is SourceKind.ENV)


def exposed_among(names: Iterable[SourceName]) -> Iterator[str]:
    """A warning for each file that every user of this machine may read."""
    for name in sorted(map(str, filter(is_open_to_all, names))):
        yield f"secret source {name} can be read by every user of this machine; chmod o-r keeps it yours"


def unsearched_among(credentials: Mapping[str, Credential]) -> Iterator[str]:
    """A warning for each rule whose credential the reflection guard cannot look for in answers."""
    for rule, credential in credentials.items():
        try:
            reason = unsearched(credential.current())
        except SecretUnavailable:  # it went since it was read a moment ago: each request is refused
            continue
        if reason is not None:
            yield f"the secret of inject rule {rule} {reason}: answers that show it are not masked"


def _tokens(loaded: Loaded) -> tuple[Reference | None, Reference | None, dict[str, Reference]]:
    """The references of the control token, the shared client token, and the clients' own."""
    settings = loaded.settings
    control = _reference(loaded, ("control", "token"), settings.control.token)
    shared = _reference(loaded, ("client_token",), settings.client_token)
    own: dict[str, Reference] = {}
    for index, client in enumerate(settings.client):
        token = _reference(loaded, ("client", index, "token"), client.token)
        if token is not None:
            own[client.name] = token
    _refuse_shared(loaded, [token for token in (control, shared, *own.values()) if token])
    return control, shared, own


def _refuse_shared(loaded: Loaded, tokens: list[Reference]) -> None:
    """Of two clients with one token the second would never be known; with the control token a client
    could widen its own list."""
    seen: dict[SourceName, Reference] = {}
    for token in tokens:
        other = seen.setdefault(token.name, token)
        if other is not token:
            where = loaded.merged.origin(other.key).text
            raise loaded.error(token.key, f"must differ from the token of {where}: each opens another door")


def _reference(loaded: Loaded, key: Key, text: str | None) -> Reference | None:
    if text is None:
        return None
    try:
        return Reference(key, parse_source(text))
    except SecretUnavailable as error:
        raise loaded.error(key, f"cannot be used: {error}") from None


def _secret(loaded: Loaded, reference: Reference, shelf: SecretShelf) -> Secret:
    try:
        return shelf.open(reference.name).current()
    except SecretUnavailable as error:
        key = reference.key
        raise loaded.error(key, f"cannot be used: {error}") from None


def _credentials(loaded: Loaded, shelf: SecretShelf) -> Iterator[tuple[str, Credential]]:
    for rule in inject_rules(loaded):
        reference = _checked(loaded, rule)
        if reference is not None:
            source = _open(loaded, rule, reference, shelf)
            yield rule.entry.name, Credential(_header(rule), rule.entry.format, source)


def _open(loaded: Loaded, rule: InjectRule, reference: Reference, shelf: SecretShelf) -> SecretSource:
    try:
        return shelf.open(reference.name)
    except SecretUnavailable as error:
        raise rule.error(loaded, "secret", f"cannot be used: {error}") from None


class _Unread:
    def current(self) -> Secret:
        raise SecretUnavailable("not read")


def _checked(loaded: Loaded, rule: InjectRule) -> Reference | None:
    """The rule's reference, its header and format found fit; None for a rule without a secret."""
    for field, header, form in (
        ("header", _header(rule), _PLAIN_FORMAT),
        ("format", _PLAIN_HEADER, rule.entry.format),
    ):
        try:
            Credential(header, form, _Unread())
        except ValueError as error:
            raise rule.error(loaded, field, f"cannot be used: {error}") from None
    text = rule.entry.secret
    if text is None:
        return None
    try:
        return Reference(rule.key or (), parse_source(text))
    except SecretUnavailable as error:
        raise rule.error(loaded, "secret", f"cannot be used: {error}") from None


def _header(rule: InjectRule) -> bytes:
    # What is not ASCII is no header, and Credential says so.
    return rule.entry.header.encode("ascii", "replace")
