"""What a sandbox did, as the events tell it: destinations as the command named them, and a bound."""

from __future__ import annotations

import pytest

from egress_proxy.core.access import Client, Door
from egress_proxy.core.attach import HOSTS_LIMIT, HostDenial, HostUse, Report
from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided, EndCause, Ended, Event, GrantEnded
from egress_proxy.core.host import Target, parse_authority
from egress_proxy.core.reply import refusal_status
from egress_proxy.proxy.sandbox_ledger import SandboxLedger, SandboxLedgers

CLIENT = Client("sandbox-1")
TARGET = parse_authority("ok.example:443")


def tunnel(target: Target = TARGET, client: Client = CLIENT) -> Decided:
    return Decided("r", client, "p", Door.TUNNEL, "CONNECT", target, 200, address="192.0.2.1")


def denied(reason: Reason, target: Target | None = TARGET) -> Decided:
    return Decided("r", CLIENT, "p", Door.TUNNEL, "CONNECT", target, refusal_status(reason), reason)


def ended(out: int, back: int, door: Door = Door.TUNNEL, reason: Reason | None = None) -> Ended:
    return Ended("r", CLIENT, TARGET, door, EndCause.DONE, out, back, 0.1, reason=reason)


def report_of(*events: Decided | Ended) -> Report:
    ledger = SandboxLedger()
    for event in events:
        ledger.note(event)
    return ledger.report()


def test_connections_and_bytes_of_one_destination_add_up() -> None:
    report = report_of(tunnel(), tunnel(), ended(1, 20), ended(2, 30), denied(Reason.NOT_LISTED))
    assert report == Report(
        (HostUse("ok.example", 443, 2, 3, 50),), (HostDenial("ok.example", 443, 1, "not_listed"),)
    )


def test_a_destination_is_host_and_port_and_an_address_is_bracketed() -> None:
    report = report_of(tunnel(parse_authority("[2001:db8::1]:443")), tunnel(parse_authority("ok.example:22")))
    assert report.reached == (HostUse("[2001:db8::1]", 443, 1), HostUse("ok.example", 22, 1))


def test_denials_count_and_tell_the_last_reason() -> None:
    report = report_of(denied(Reason.NOT_LISTED), denied(Reason.DENIED_BY_RULE))
    assert report == Report((), (HostDenial("ok.example", 443, 2, "denied_by_rule"),))


@pytest.mark.parametrize("reason", list(Reason))
def test_a_denial_is_what_policy_refused_and_not_what_went_wrong(reason: Reason) -> None:
    assert bool(report_of(denied(reason)).denied) is (refusal_status(reason) in (403, 405))


def test_a_tunnel_that_was_cut_for_the_name_in_its_hello_was_denied() -> None:
    report = report_of(tunnel(), ended(200, 0, reason=Reason.SNI_MISMATCH))
    assert report.denied == (HostDenial("ok.example", 443, 1, "sni_mismatch"),)
    assert report.reached == (HostUse("ok.example", 443, 1, 200, 0),)


def test_what_names_no_destination_is_not_listed() -> None:
    assert report_of(denied(Reason.METADATA, None)) == Report()


@pytest.mark.parametrize("door", [Door.ABSOLUTE, Door.CONNECT_INJECT])
def test_injected_requests_are_counted_one_by_one_under_the_port_that_was_named(door: Door) -> None:
    named = parse_authority("ok.example:80")
    opens = Decided("r", CLIENT, "p", Door.CONNECT_INJECT, "CONNECT", named, 200)
    asked = Decided("r", CLIENT, "p", door, "GET", named, None)
    report = report_of(opens, asked, ended(5, 6, door), asked, ended(5, 6, door), tunnel(), ended(1, 1))
    assert report.reached == (HostUse("ok.example", 80, 2, 10, 12), HostUse("ok.example", 443, 1, 1, 1))


def test_beyond_the_limit_it_counts_and_lists_no_more() -> None:
    targets = [parse_authority(f"h{number}.example:443") for number in range(HOSTS_LIMIT + 2)]
    events = [event for target in targets for event in (tunnel(target), denied(Reason.NOT_LISTED, target))]
    report = report_of(*events, tunnel(targets[0]))
    assert (len(report.reached), len(report.denied), report.dropped) == (HOSTS_LIMIT, HOSTS_LIMIT, 4)
    assert report.reached[0].connections == 2


def test_each_living_sandbox_hears_of_its_own() -> None:
    ledgers = SandboxLedgers()
    first, second = SandboxLedger(), SandboxLedger()
    ledgers.living = {"sandbox-1": first, "sandbox-2": second}
    others: list[Event] = [
        tunnel(client=Client()),
        tunnel(client=Client("sandbox-3")),
        GrantEnded("g", "r", "c", 0),
    ]
    ledgers.note([tunnel(), *others, tunnel(client=Client("sandbox-2"))])
    for ledger in (first, second):
        assert ledger.report().reached == (HostUse("ok.example", 443, 1),)
