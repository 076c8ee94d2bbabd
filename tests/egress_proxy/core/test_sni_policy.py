"""Rules of core/sni_policy.py: TLS may name the host that CONNECT named, and no other.

How the name is read from bytes is held by ../proxy/test_client_hello.py.
"""

import pytest

from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.host import parse_authority
from egress_proxy.core.sni_policy import FlightVerdict, Hello, OtherFlight, SniPolicy, judge_first_flight

TARGET = parse_authority("ok.example:443")
EVERY_POLICY = [SniPolicy(require_sni=a, only_tls=b) for a in (False, True) for b in (False, True)]


@pytest.mark.parametrize("sni", EVERY_POLICY)
@pytest.mark.parametrize("name", ["ok.example", "OK.Example", "ok.example."])
def test_the_connected_name_passes_in_every_spelling(sni: SniPolicy, name: str) -> None:
    assert judge_first_flight(TARGET, Hello(name), sni) is FlightVerdict.MATCHES


@pytest.mark.parametrize("sni", EVERY_POLICY)
@pytest.mark.parametrize(
    "name",
    ["evil.test", "a.ok.example", "xok.example", "example", "ok.example.evil.test", "", ".",
     "ok.example..", "*.ok.example", "ok.example:443", "ok.example\x00", "ok.example\x00.evil.test",
     " ok.example", "o\u212a.example", "[::1]", "127.0.0.1", "x" * 16384, "\ud800"],
)  # fmt: skip
def test_any_other_name_is_refused(sni: SniPolicy, name: str) -> None:
    refusal = judge_first_flight(TARGET, Hello(name), sni)
    assert isinstance(refusal, Deny)
    assert (refusal.reason, refusal.target) == (Reason.SNI_MISMATCH, TARGET)
    assert refusal.detail.isascii()
    assert refusal.detail.isprintable()
    assert len(refusal.detail) < 150


def test_a_hello_without_a_name_passes_unless_one_is_required() -> None:
    for sni in EVERY_POLICY:
        verdict = judge_first_flight(TARGET, Hello(None), sni)
        assert verdict == (Deny(Reason.SNI_MISSING, TARGET) if sni.require_sni else FlightVerdict.UNNAMED)


def test_other_first_bytes_pass_unless_only_tls_may() -> None:
    for sni in EVERY_POLICY:
        verdict = judge_first_flight(TARGET, OtherFlight.NOT_TLS, sni)
        assert verdict == (Deny(Reason.NOT_TLS, TARGET) if sni.only_tls else FlightVerdict.NOT_TLS)


@pytest.mark.parametrize("sni", EVERY_POLICY)
def test_a_hello_that_cannot_be_read_is_refused(sni: SniPolicy) -> None:
    """Else a broken hello that the upstream forgives would hide its name from us."""
    refusal = judge_first_flight(TARGET, OtherFlight.UNREADABLE, sni)
    assert isinstance(refusal, Deny)
    assert refusal.reason is Reason.SNI_MISMATCH


@pytest.mark.parametrize("literal", ["192.0.2.1", "[2001:db8::1]"])
def test_a_tunnel_to_an_address_may_name_nobody(literal: str) -> None:
    target = parse_authority(f"{literal}:443")
    assert judge_first_flight(target, Hello(None), SniPolicy()) is FlightVerdict.UNNAMED
    assert judge_first_flight(target, Hello(literal), SniPolicy()) is FlightVerdict.MATCHES
    refusal = judge_first_flight(target, Hello("ok.example"), SniPolicy())
    assert isinstance(refusal, Deny)
    assert refusal.reason is Reason.SNI_MISMATCH


def test_what_is_recorded_has_stable_words() -> None:
    assert [*FlightVerdict] == ["matches", "unnamed", "not_tls"]
    refusals = [
        judge_first_flight(TARGET, flight, SniPolicy()) for flight in (Hello("a.b"), OtherFlight.UNREADABLE)
    ]
    assert [refusal.detail for refusal in refusals if isinstance(refusal, Deny)] == [
        "the ClientHello names 'a.b'",
        "the ClientHello cannot be read",
    ]


def test_the_check_is_on_by_default_and_the_stricter_ones_are_off() -> None:
    assert SniPolicy() == SniPolicy(check=True, require_sni=False, only_tls=False)
