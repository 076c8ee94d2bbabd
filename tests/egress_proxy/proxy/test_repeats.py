"""Floods of refusals: the first are written, the rest is counted to the last, and the memory is bounded.

See egress_proxy/proxy/repeats.py; with a file and a ledger: test_record.py.
"""

from egress_proxy.core.access import Client
from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided, Repeated
from egress_proxy.core.host import Target, parse_authority
from egress_proxy.proxy.repeats import CLIENT_BURST, KEYS_LIMIT, SAME_BURST, Repeats

TARGET = parse_authority("evil.example:443")
AGENT = Client("agent-1")


def refusal(
    target: Target | None = TARGET, *, client: Client = AGENT, peer: str = "127.0.0.1:5000", number: int = 0
) -> Decided:
    return Decided(f"r-{number}", client, peer, None, "CONNECT", target, 403, Reason.NOT_LISTED)


def passed(repeats: Repeats, times: int, *, at_s: float = 0.0, **refused: object) -> int:
    return sum(repeats.passes(refusal(**refused), at_s) for _ in range(times))  # type: ignore[arg-type]


def test_the_first_ones_pass_and_the_others_are_counted_to_the_last() -> None:
    repeats = Repeats()
    assert passed(repeats, 1_000) == SAME_BURST
    assert repeats.take(1.0) == (Repeated(AGENT, "127.0.0.1", TARGET, Reason.NOT_LISTED, 1_000 - SAME_BURST),)
    assert not repeats
    assert repeats.take(2.0) == ()


def test_a_client_that_is_refused_now_and_then_has_a_line_each_time() -> None:
    repeats = Repeats()
    assert sum(passed(repeats, 1, at_s=second * 1.0) for second in range(2 * SAME_BURST)) == 2 * SAME_BURST
    assert not repeats


def test_whoever_goes_on_has_one_line_a_second() -> None:
    repeats, lines = Repeats(), 0
    for second in range(60):
        lines += passed(repeats, 100, at_s=second * 1.0)
        repeats.take(second * 1.0)
    assert lines <= SAME_BURST + 60


def test_another_port_of_the_same_client_is_the_same_and_another_target_is_not() -> None:
    repeats = Repeats()
    ports = sum(passed(repeats, 1, peer=f"127.0.0.1:{port}") for port in range(5000, 6000))
    assert ports == SAME_BURST
    assert passed(repeats, 1, target=parse_authority("other.example:443")) == 1


def test_one_client_cannot_silence_another() -> None:
    repeats = Repeats()
    passed(repeats, 10_000)
    assert passed(repeats, 1, client=Client("agent-2")) == 1


def test_many_targets_of_one_client_are_one_count() -> None:
    repeats = Repeats()
    targets = [parse_authority(f"h{number}.example:443") for number in range(5_000)]
    lines = sum(passed(repeats, 1, target=target) for target in targets)
    assert lines == CLIENT_BURST
    told = repeats.take(1.0)
    assert sum(one.times for one in told) == 5_000 - CLIENT_BURST
    assert told == (Repeated(AGENT, "127.0.0.1", None, None, 5_000 - CLIENT_BURST),)


def test_what_has_no_target_is_counted_too() -> None:
    repeats = Repeats()
    passed(repeats, SAME_BURST + 15, target=None)
    (told,) = repeats.take(1.0)
    assert (told.target, told.times) == (None, 15)


def test_the_number_of_clients_does_not_grow_the_memory_and_nothing_is_lost() -> None:
    repeats, clients, lines = Repeats(), 5 * KEYS_LIMIT, 0
    for number in range(clients):
        lines += passed(repeats, 1, peer=f"192.0.2.{number}:1")
    told = repeats.take(1.0)
    assert len(told) <= KEYS_LIMIT + 1
    assert lines + sum(one.times for one in told) == clients
    # After a while everybody starts anew.
    repeats.take(1_000.0)
    assert passed(repeats, 1, at_s=1_000.0, peer="198.51.100.1:1") == 1
