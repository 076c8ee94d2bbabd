"""The flags that are settings: `serve` has all of them, `check` and `config` those that they need.

Values stay text here, settings/tree.py says what they may be; no defaults, so that a flag that was
not given hides nothing. Next: settings/load.py (flags over variables over the file).
"""

import argparse
from collections.abc import Mapping

from egress_proxy.cli.flag_parser import FlagParser
from egress_proxy.settings.origins import Text

_ENTRY = "HOST[:PORT]"
_CONFIG_HELP = (
    "settings file (default: $EGRESS_CONFIG, else $XDG_CONFIG_HOME/egress/egress.toml); "
    "never read from the working directory"
)
# What is no setting: it says where those are, what to print, or how `run` confines.
_OTHERS = frozenset({
    "config", "quiet", "verbose", "json", "host", "as_client", "action", "secrets",
    "command", "bare_module", "rw", "ro", "dangerously_rw", "mask", "no_mask", "backend", "ask", "env",
})  # fmt: skip


def settings_given(arguments: argparse.Namespace) -> Mapping[str, object]:
    """The settings among the flags that were given, by their names with underscores."""
    return {
        name: _marked(value)
        for name, value in vars(arguments).items()
        if name not in _OTHERS and value not in (None, False)
    }


def _marked(value: object) -> object:
    if isinstance(value, list):
        return [_marked(item) for item in value]
    return Text(value) if isinstance(value, str) else value


def add_settings(parser: FlagParser) -> None:
    add_lists(parser)
    _add_listening(parser)
    parser.may_be_empty.add("attach")
    _add_control(parser)
    _add_connecting(parser)
    add_credential_rule(parser)
    _add_records(parser)
    add_config(parser)


def add_lists(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("who may be reached")
    for flag, words in (
        ("--allow", "a host that may be reached; repeatable; a bare host means ports 443 and 80"),
        ("--allow-private", "the same, and the name may lead to a loopback or private address"),
        ("--allow-shared", "the same, for a wildcard under a domain that many tenants share"),
        ("--deny", "wins over every other entry and every grant; a bare host means every port"),
    ):
        group.add_argument(flag, action="append", metavar=_ENTRY, help=words)
    group.add_argument("--allow-none", action="store_true", help="start with an empty list on purpose")


def add_credential_rule(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("one credential that agents use and never hold")
    group.add_argument(
        "--inject-host", metavar="H", help="requests to http://H go on over TLS with the credential"
    )
    group.add_argument(
        "--inject-secret-env", metavar="VAR", help="variable that holds the whole header value"
    )
    group.add_argument("--inject-header", metavar="N", help="default: Authorization")
    group.add_argument("--inject-scheme", metavar="https|http", help="default: https; http to loopback only")
    group.add_argument("--inject-port", metavar="P", help="upstream port, default: 443 or 80")


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="PATH", help=_CONFIG_HELP)


def _add_listening(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where it listens, and to whom")
    group.add_argument("--bind", metavar="HOST:PORT", help="default: 127.0.0.1:8899; port 0 is any free one")
    group.add_argument(
        "--dangerously-bind-any",
        action="store_true",
        help="permit a --bind beyond loopback; needs client authentication too",
    )
    group.add_argument("--listen-unix", metavar="PATH", help="a unix socket besides, mode 0600")
    group.add_argument(
        "--same-user",
        action="store_true",
        help="take connections of this user's own processes on this machine alone (Linux)",
    )
    group.add_argument(
        "--attach",
        metavar="PATH",
        help="where sandboxes attach, '' for nowhere (default: $XDG_RUNTIME_DIR/egress-proxy/attach.sock, "
        "else below the state folder); printed as EGRESS_ATTACH",
    )
    group.add_argument(
        "--client-token-env",
        metavar="VAR",
        help="variable that holds the token which clients must send in Proxy-Authorization",
    )


def _add_control(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("control API, on loopback")
    group.add_argument("--control-port", metavar="P", help="default: 0, any free one")
    group.add_argument(
        "--control-token-env",
        metavar="VAR",
        help="variable that holds its token; without one there is no control API",
    )


def _add_connecting(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it connects")
    group.add_argument("--connect-timeout", metavar="S", help="seconds for lookup, dial and TLS; default: 10")
    group.add_argument("--resolver", metavar="IP[:PORT]", help="DNS server (default: the system's)")
    group.add_argument("--relay", metavar="epoll|loop", help="how tunnels are driven")
    group.add_argument(
        "--no-sni-check",
        action="store_true",
        help="let TLS on port 443 name another host than CONNECT did",
    )
    # Refused by settings/tree.py, in one line, or without effect beside what is refused: so not offered.
    for flag in ("--on-miss", "--hold-timeout", "--upstream-proxy"):
        group.add_argument(flag, help=argparse.SUPPRESS)


def _add_records(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("records")
    group.add_argument("--audit", metavar="PATH", help="hash-chained JSON lines, mode 0600")
    group.add_argument(
        "--record-requests", metavar="PATH", help="bodies of requests with a credential, as JSON"
    )
