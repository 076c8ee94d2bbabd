"""`check HOST[:PORT]`: the decision for one target, offline, from the settings that serve would have.

Decides nothing itself. Next: core/policy.py (decides), planning.py (reads the settings).
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.output import print_json, say, shown
from egress_proxy.cli.policy_source import policy_of
from egress_proxy.cli.printed import CheckPrinted
from egress_proxy.cli.scopes import client_names
from egress_proxy.cli.settings_flags import settings_given
from egress_proxy.core.access import ANONYMOUS, Access, Client, Door
from egress_proxy.core.decision import Allow, Ask, Decision, Deny
from egress_proxy.core.dial_policy import judge_addresses
from egress_proxy.core.grants import Grants
from egress_proxy.core.host import HostError, Name, Target, parse_web_authority
from egress_proxy.core.policy import Policy, decide
from egress_proxy.core.reply import hint_for, unanswered
from egress_proxy.settings.load import load

_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Question:
    """A target, and the path where a URL gave one; ``plain`` for http URLs."""

    target: Target
    path: bytes = b"/"
    plain: bool = False


def check(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    question = read_question(arguments.host)
    loaded = load(settings_given(arguments), environ, arguments.config)
    policy = policy_of(loaded, environ)
    name = arguments.as_client or ANONYMOUS
    if name != ANONYMOUS and name not in client_names(loaded):
        raise VerbFailed(ExitCode.USAGE, f"--client {name} names no [[client]] of the settings")
    door = _door(question, policy)
    decision = _judged(_decided(question, door, Client(name), policy))
    _print(question.target, door, decision, as_json=arguments.json)
    return ExitCode.REFUSED if isinstance(decision, Deny) else ExitCode.OK


def read_question(text: str) -> Question:
    """Read `host`, `host:port` or an http(s) URL. Raises VerbFailed."""
    try:
        return _read(text)
    except (HostError, ValueError) as error:
        reason = error if isinstance(error, HostError) else "it is no URL"
        raise VerbFailed(ExitCode.USAGE, f"{text!r} is no target: {reason}") from None


def _read(text: str) -> Question:
    scheme, colon, rest = text.partition("://")
    if not colon:
        return Question(parse_web_authority(text, 443))
    port = _PORTS.get(scheme.lower())
    if port is None:
        raise HostError("only http and https go through the proxy")
    url = urlsplit(f"//{rest}")
    path = (url.path or "/").encode("ascii")
    return Question(parse_web_authority(url.netloc, port), path, plain=scheme.lower() == "http")


def _door(question: Question, policy: Policy) -> Door:
    """Plain HTTP to a rule's host is rewritten by the rule; everything else is a tunnel."""
    return Door.ABSOLUTE if question.plain and policy.is_route(question.target) else Door.TUNNEL


def _decided(question: Question, door: Door, client: Client, policy: Policy) -> Decision:
    method = "CONNECT" if door is Door.TUNNEL else "GET"
    access = Access(client, question.target, door, method, question.path)
    return decide(access, policy, Grants(), time.time())


def _judged(decision: Decision) -> Allow | Deny:
    """With what is known offline: a literal address is judged, a name's are when it is dialled."""
    if isinstance(decision, Ask):
        return unanswered(decision)
    if isinstance(decision, Deny) or isinstance(decision.target.host, Name):
        return decision
    judged = judge_addresses(decision, (decision.target.host,), (), ())
    return judged if isinstance(judged, Deny) else decision


def _print(target: Target, door: Door, decision: Allow | Deny, *, as_json: bool) -> None:
    is_denied = isinstance(decision, Deny)
    answer = CheckPrinted(
        target=str(target),
        decision="deny" if is_denied else "allow",
        reason=str(decision.reason) if isinstance(decision, Deny) else None,
        rule=decision.rule,
        door=str(door),
        hint=hint_for(decision) if isinstance(decision, Deny) else None,
    )
    if as_json:
        print_json(answer)
        return
    words = ["refused" if is_denied else "allowed", answer.target]
    words += [answer.reason] if answer.reason else []
    words += [f"by {shown(answer.rule)}"] if answer.rule else []
    print("  ".join(words))
    if answer.hint:
        say(f"hint: {answer.hint}")
