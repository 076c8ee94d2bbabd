"""The flags of `serve` are those of the contract, and what was not given hides nothing."""

from egress_proxy.cli.arguments import serve_parser
from egress_proxy.cli.settings_flags import settings_given
from egress_proxy.settings.load import load
from egress_proxy.settings.origins import Text
from egress_proxy.settings.short_keys import SHORT_KEYS
from egress_proxy.settings.tree import Settings

# Which argv existing hosts may use (contract section 1, drop-in).
DROP_IN = [
    *["--bind", "127.0.0.1:0", "--allow", "a.example", "--allow", "b.example:22"],
    *["--inject-host", "c.example", "--inject-secret-env", "SECRET", "--inject-header", "x-api-key"],
    *["--inject-scheme", "https", "--inject-port", "8443", "--record-requests", "r.jsonl"],
    *["--control-port", "0", "--control-token-env", "TOKEN", "--connect-timeout", "2.5"],
]


def given(argv: list[str]) -> dict[str, object]:
    return dict(settings_given(serve_parser("egress-proxy serve").parse(argv)))


def test_flags_that_were_not_given_are_absent() -> None:
    assert given([]) == {}
    assert given(["-q", "--config", "x"]) == {}


def test_the_flags_of_existing_hosts_are_read() -> None:
    settings = load(given(DROP_IN), {}).settings
    assert (settings.bind, settings.connect_timeout) == ("127.0.0.1:0", 2.5)
    assert [entry.host for entry in settings.allow] == ["a.example", "b.example:22"]
    assert (settings.inject_host, settings.inject_secret_env) == ("c.example", "SECRET")
    assert (settings.inject_header, settings.inject_scheme) == ("x-api-key", "https")
    assert (settings.inject_port, settings.record_requests) == (8443, "r.jsonl")
    assert (settings.control.port, settings.control.token) == (0, "env:TOKEN")


def test_the_other_flags_are_read() -> None:
    argv = [
        *["--allow-private", "p", "--allow-shared", "*.s", "--deny", "d", "--allow-none"],
        *["--on-miss", "deny", "--hold-timeout", "5", "--resolver", "192.0.2.1", "--listen-unix", "/u"],
        *["--audit", "/a", "--no-sni-check", "--client-token-env", "T", "--dangerously-bind-any"],
        *["--relay", "loop", "--attach", ""],
    ]
    settings = load(given(argv), {}).settings
    assert (settings.allow_private, settings.allow_shared) == (("p",), ("*.s",))
    assert (settings.deny[0].host, settings.allow_none, settings.hold_timeout) == ("d", True, 5)
    assert (settings.resolver, settings.listen_unix, settings.audit.path) == ("192.0.2.1", "/u", "/a")
    assert (settings.tls.sni_check, settings.client_token) == (False, "env:T")
    assert (settings.dangerously_bind_any, settings.relay) == (True, "loop")


def test_every_flag_has_a_key_of_its_name() -> None:
    flags = vars(serve_parser("egress-proxy serve").parse([])).keys() - {"config", "quiet", "verbose"}
    assert flags <= {*Settings.model_fields, *SHORT_KEYS}


def test_text_is_marked_as_text() -> None:
    flags = given(["--allow", "a", "--bind", "b", "--allow-none"])
    assert isinstance(flags["bind"], Text)
    assert isinstance(flags["allow"], list)
    assert isinstance(flags["allow"][0], Text)
    assert flags["allow_none"] is True
