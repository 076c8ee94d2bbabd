"""The flags of `sandbox profile|linux-wrap|describe` and what they share with `run`.

No meaning here. Next: sandbox_verb.py (runs them), sandbox_policy.py (flags to a SandboxSpec).
"""

import argparse

from egress_proxy.cli.flag_parser import FlagParser
from egress_proxy.cli.settings_flags import add_lists
from egress_proxy.sandbox.spec import BACKENDS

EVERYTHING = "/"
"""What `--no-mask` without a path stands for: all is below it."""


def profile_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "Print a Seatbelt profile for macOS's sandbox-exec: writes to the roots alone, egress as listed.",
        (
            f"{prog} --writable-root ~/.steerable --proxy-port 8899 > agent.sb",
            f"{prog} --allow-host localhost:11434",
            f"{prog} --writable-root . --no-network",
        ),
        "[flags]",
    )
    _add_roots(parser)
    parser.add_argument("--no-network", action="store_true", help="no egress at all")
    parser.add_argument("--deny-all", action="store_true", help="the same: a closed list without entries")
    _add_hosts(parser)
    parser.add_argument(
        "--proxy-port", type=int, metavar="N", help="egress to the proxy on localhost:N and nothing else"
    )
    parser.add_argument(
        "--allow-resolver", action="store_true", help="keep the system's resolver reachable (a gap)"
    )
    parser.add_argument(
        "--allow-trust",
        action="store_true",
        help="keep the certificate service reachable, which Go programs ask about TLS (a gap: it fetches"
        " addresses that certificates name)",
    )
    return parser


def linux_wrap_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "Print, as one JSON line, a command line that runs COMMAND confined, for whoever spawns it.\n"
        "Exit 2 when it cannot be confined: nothing is ever run bare.",
        (
            f'{prog} --writable-root ~/.steerable --proxy "$EGRESS_ATTACH" -- agent --flag',
            f"{prog} --no-network -- make test",
            f"{prog} --writable-root . --no-network --backend landlock -- make test",
        ),
        "[flags] -- COMMAND …",
    )
    _add_roots(parser)
    parser.add_argument("--no-network", action="store_true", help="no network at all")
    _add_proxy(parser)
    _add_backend(parser)
    _add_ro(parser)
    _add_env(parser)
    return parser


def describe_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "Say how far exactly this policy can be enforced on this machine, and what is missing.\n"
        "What it names has been tried: a probe ran in it.",
        (
            f"{prog} --no-network",
            f'{prog} --writable-root . --proxy "$EGRESS_ATTACH"',
            f"{prog} --allow-host localhost:8899 --backend landlock",
        ),
        "[flags]",
    )
    _add_roots(parser)
    parser.add_argument("--no-network", action="store_true", help="no network at all")
    _add_hosts(parser)
    _add_proxy(parser)
    _add_backend(parser)
    return parser


def _add_roots(parser: FlagParser) -> None:
    parser.add_argument(
        "--writable-root", action="append", default=[], metavar="DIR", help="may be written; repeatable"
    )
    parser.add_argument(
        "--dangerously-writable-root",
        action="append",
        default=[],
        metavar="DIR",
        help="the same for folders that are refused otherwise: a home, a system folder, this program's own",
    )
    _add_masks(parser)


def _add_masks(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--mask", action="append", default=[], metavar="PATH", help="must not be read; repeatable"
    )
    parser.add_argument(
        "--no-mask",
        nargs="?",
        action="append",
        const=EVERYTHING,
        default=[],
        metavar="PATH",
        help="let this be read although keys or tokens lie there; repeatable. Without PATH: all of that",
    )


def _add_hosts(parser: FlagParser) -> None:
    parser.add_argument(
        "--allow-host",
        action="append",
        metavar="HOST[:PORT]",
        help="close egress but for this; repeatable. Without our proxy only ports can be held",
    )


def _add_proxy(parser: FlagParser) -> None:
    parser.add_argument(
        "--proxy", metavar="ATTACH", help="the running proxy's attach socket, its only way out"
    )


def _add_ro(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--ro",
        action="append",
        default=[],
        metavar="DIR",
        help="show what lies in /tmp, /var/tmp or /run, of which it has its own, to be read; repeatable",
    )


def _add_env(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="pass a variable on as it is by then, or set it; repeatable. A value stands in the command line"
        " for all to see: name secrets without one",
    )


def _add_backend(parser: FlagParser) -> None:
    parser.add_argument("--backend", choices=BACKENDS, help="this one or none")


def run_parser(prog: str) -> FlagParser:
    parser = FlagParser(
        prog,
        "Run a command that reaches the listed hosts and no others, and writes to the listed folders alone.\n"
        "Its own exit code; 128+n for signal n, 125 our fault, 126 cannot be executed, 127 not found.",
        (
            f"{prog} --allow api.example.com -- curl https://api.example.com/",
            f"{prog} --allow '*.example.org' --rw . -- npm install",
            f"{prog} --config egress.toml --rw . -- agent --flag",
        ),
        "[flags] -- COMMAND …",
    )
    add_lists(parser)
    files = parser.add_argument_group("files")
    files.add_argument(
        "--rw", action="append", default=[], metavar="DIR", help="a folder it may write to; repeatable"
    )
    _add_ro(files)
    files.add_argument(
        "--dangerously-rw",
        action="append",
        default=[],
        metavar="DIR",
        help="the same for folders that are refused otherwise: a home, a system folder, this program's own",
    )
    _add_masks(files)
    _add_env(parser)
    _add_backend(parser)
    parser.add_argument(
        "--rules", "--config", dest="config", metavar="FILE", help="a settings file, as `serve` reads it"
    )
    parser.add_argument("--audit", metavar="PATH", help="hash-chained JSON lines, mode 0600")
    parser.add_argument("--resolver", metavar="IP[:PORT]", help="DNS server (default: the system's)")
    parser.add_argument(
        "--ask", action="store_true", help="ask at the terminal about hosts that are not listed"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print no summary, and no warnings")
    parser.add_argument("-v", "--verbose", action="store_true", help="log each decision as it is made")
    return parser
