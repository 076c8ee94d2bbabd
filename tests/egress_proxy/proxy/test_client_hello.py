"""Rules of the first flight: the name as sent, however it is cut, and no way to make a noise with it.

Hellos are OpenSSL's own (hellos.py); a real client through the product is in the end-to-end tests.
See egress_proxy/proxy/client_hello.py.
"""

import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.sni_policy import Hello, OtherFlight
from egress_proxy.proxy.client_hello import HELLO_LIMIT_BYTES, FirstFlight
from tests.egress_proxy.proxy.hellos import NAME, hello, in_two_records, long_hello, renamed
from tests.support.proc_figures import rss_bytes

ROOT = Path(__file__).resolve().parents[3]
PLAIN = hello()
NAMELESS = hello(None)


def judged(*pieces: bytes) -> Hello | OtherFlight | None:
    """What is known after the last piece; every piece before it must leave it open."""
    flight = FirstFlight()
    for number, piece in enumerate(pieces[:-1]):
        assert flight.feed(piece) is None, f"known too early, after piece {number}"
    return flight.feed(pieces[-1])


# Names


def test_the_name_of_a_hello_is_found() -> None:
    assert judged(PLAIN) == Hello(NAME)


def test_a_hello_without_a_name_names_nobody() -> None:
    assert judged(NAMELESS) == Hello(None)


@pytest.mark.parametrize("name", [b"OK.Example", b"ok\x1b[2Jwxyz", b" " * 10, b"." * 10, b"192.0.2.10"])
def test_a_name_is_given_as_it_was_sent_and_not_judged(name: bytes) -> None:
    assert judged(renamed(PLAIN, name)) == Hello(name.decode())


def test_a_name_as_long_as_names_can_be_is_found() -> None:
    name = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert judged(hello(name)) == Hello(name)


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1", "TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("name", [NAME, None])
def test_clients_of_every_version_are_read(version: str, name: str | None) -> None:
    assert judged(hello(name, only=ssl.TLSVersion[version])) == Hello(name)


def test_protocols_that_are_offered_change_nothing() -> None:
    assert judged(hello(alpn=["h2", "http/1.1", "acme-tls/1"])) == Hello(NAME)


# However it is cut


def test_a_hello_in_any_two_pieces_is_read_when_it_is_whole() -> None:
    for cut in range(1, len(PLAIN)):
        assert judged(PLAIN[:cut], PLAIN[cut:]) == Hello(NAME)


@pytest.mark.parametrize("flight", [PLAIN, NAMELESS, long_hello()])
def test_a_hello_that_comes_byte_by_byte_is_read_at_its_last(flight: bytes) -> None:
    name = None if flight is NAMELESS else NAME
    assert judged(*(flight[at : at + 1] for at in range(len(flight)))) == Hello(name)


def test_an_empty_piece_tells_nothing() -> None:
    assert judged(b"", PLAIN[:100], b"", PLAIN[100:]) == Hello(NAME)


def test_a_hello_in_any_two_records_is_read() -> None:
    for cut in range(1, len(PLAIN) - 5, 7):
        assert judged(in_two_records(PLAIN, cut)) == Hello(NAME)


def test_a_hello_cut_into_two_records_within_its_name_is_read_byte_by_byte() -> None:
    flight = in_two_records(PLAIN, PLAIN.index(NAME.encode()) + 3 - 5)
    assert judged(*(flight[at : at + 1] for at in range(len(flight)))) == Hello(NAME)


def test_a_long_hello_is_read() -> None:
    flight = long_hello()
    assert len(flight) > 20_000
    assert judged(flight) == Hello(NAME)
    assert judged(flight[:1], flight[1:16_000], flight[16_000:]) == Hello(NAME)


def test_what_follows_a_hello_at_once_is_kept_with_it() -> None:
    """0-RTT data, or the next message of a client that does not wait."""
    flight = FirstFlight()
    early = b"\x17\x03\x03\x00\x10" + bytes(16)
    assert flight.feed(PLAIN[:50]) is None
    assert flight.feed(PLAIN[50:] + early) == Hello(NAME)
    assert flight.held == PLAIN + early


def test_bytes_behind_a_whole_hello_do_not_count_against_its_limit() -> None:
    early = bytes(HELLO_LIMIT_BYTES - len(PLAIN) + 1)
    assert judged(PLAIN[:1], PLAIN[1:] + early) == Hello(NAME)


def test_flights_of_many_tunnels_do_not_mix() -> None:
    flights = [(f"h{number}.example", FirstFlight()) for number in range(20)]
    for name, flight in flights:
        assert flight.feed(hello(name)[:-1]) is None
    for name, flight in reversed(flights):
        assert flight.feed(hello(name)[-1:]) == Hello(name)


# What is no hello


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-OpenSSH_9\r\n", b"\x00", b"\x80\x2e\x01\x00\x02", b"\xff"]
)
def test_other_protocols_are_told_by_their_first_byte(data: bytes) -> None:
    assert judged(data) is OtherFlight.NOT_TLS
    assert judged(data[:1]) is OtherFlight.NOT_TLS


@pytest.mark.parametrize("kind", [0x14, 0x15, 0x17, 0x18])
def test_a_record_in_front_of_a_hello_cannot_hide_it(kind: int) -> None:
    """Servers skip a warning alert, for one, and then read the name that we would not have seen."""
    record = bytes([kind]) + b"\x03\x01\x00\x02\x01\x00"
    assert judged(record) is OtherFlight.UNREADABLE
    assert judged(record + PLAIN) is OtherFlight.UNREADABLE
    assert judged(record[:1]) is OtherFlight.UNREADABLE


@pytest.mark.parametrize("version", [b"\x00\x00", b"\x02\x00", b"\x04\x00", b"\xfe\xfd", b"\xff\xff"])
def test_a_record_with_a_version_of_its_own_cannot_hide_a_hello(version: bytes) -> None:
    """Some servers do not look at it."""
    assert judged(PLAIN[:1] + version + PLAIN[3:]) is OtherFlight.UNREADABLE


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\x00\x00" * 50,
        b"\x16\x03\x03\x00\x04\x02\x00\x00\x00",  # a ServerHello
        b"\x16\x03\x03\x00\x04\x01\x00\x00\x00",  # an empty ClientHello
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        PLAIN[:100] + bytes(len(PLAIN)),
    ],
)
def test_what_begins_as_a_hello_and_is_none_is_unreadable(data: bytes) -> None:
    assert judged(data) is OtherFlight.UNREADABLE


def test_a_hello_that_never_ends_is_given_up_and_not_held() -> None:
    flight = FirstFlight()
    message = b"\x01" + (100_000).to_bytes(3, "big") + bytes(100_000)  # OpenSSL would take so much
    outcome = None
    for begin in range(0, len(message), 4096):
        part = message[begin : begin + 4096]
        outcome = flight.feed(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part)
        if outcome is not None:
            break
    assert outcome is OtherFlight.UNREADABLE
    assert HELLO_LIMIT_BYTES < len(flight.held) <= HELLO_LIMIT_BYTES + 4096 + 5


def test_half_a_hello_costs_what_has_come_of_it_and_little_more() -> None:
    """60,000 bytes of one cost 222 KiB, and 4,096 tunnels a gigabyte."""
    message = b"\x01" + (23_000).to_bytes(3, "big") + bytes(20_000)
    record = b"\x16\x03\x01" + (16_000).to_bytes(2, "big")
    part = record + message[:16_000] + b"\x16\x03\x01" + (4_100).to_bytes(2, "big") + message[16_000:]
    before = rss_bytes(os.getpid())
    flights = [FirstFlight() for _ in range(400)]
    for flight in flights:
        for begin in range(0, len(part), 1000):
            assert flight.feed(part[begin : begin + 1000]) is None
    assert (rss_bytes(os.getpid()) - before) / len(flights) < 32_768


@pytest.mark.parametrize("name", [b"ok\0example", b"ok.exampl\0", b"\0" * 10])
def test_a_name_with_a_nul_is_unreadable(name: bytes) -> None:
    assert judged(renamed(PLAIN, name)) is OtherFlight.UNREADABLE


def test_two_names_are_unreadable() -> None:
    """The list of names may hold one of each kind (RFC 6066 3); servers differ in which they would take."""
    whole = b"\x00\x0d\x00\x00\x0aok.example"  # list of 13: a host name of 10
    halves = b"\x00\x0d\x00\x00\x04ok.e\x00\x00\x03ple"
    assert judged(PLAIN.replace(whole, halves)) is OtherFlight.UNREADABLE


@pytest.mark.parametrize("flight", [PLAIN, NAMELESS])
def test_a_second_or_an_empty_extension_of_names_is_unreadable(flight: bytes) -> None:
    ticket = b"\x00\x23\x00\x00"  # an empty extension, which becomes one of type server_name
    assert flight.count(ticket) == 1
    assert judged(flight.replace(ticket, b"\x00\x00\x00\x00")) is OtherFlight.UNREADABLE


@pytest.mark.parametrize("name", [b"\xff" * 10, b"ok.exampl\xe9", "bücher.de".encode(), b"\x80k.example"])
def test_a_name_that_is_not_ascii_is_unreadable(name: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    hook = sys.unraisablehook
    assert judged(renamed(PLAIN, name)) is OtherFlight.UNREADABLE
    assert judged(PLAIN) == Hello(NAME)
    assert unraisable == []
    assert sys.unraisablehook == hook


PRINTS_NOTHING = """
import sys
from egress_proxy.proxy.client_hello import FirstFlight
for line in sys.stdin:
    print(FirstFlight().feed(bytes.fromhex(line)))
"""


def test_no_hello_makes_the_process_say_anything() -> None:
    """`ssl` writes a traceback for a name that it cannot decode, and warns of old versions."""
    flights = [PLAIN, renamed(PLAIN, b"\xff" * 10), renamed(PLAIN, b"\x1b]0;x\x07abcd"), NAMELESS[:-9]]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRINTS_NOTHING],
        input="\n".join(flight.hex() for flight in flights).encode(),
        capture_output=True,
        check=True,
        cwd=ROOT,
        timeout=20,
    )
    assert done.stderr == b""
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == [repr(Hello(NAME)), str(OtherFlight.UNREADABLE)]
    assert lines[3] == "None"


# Whatever is fed


@given(
    st.lists(st.binary(max_size=200), max_size=5), st.sampled_from([b"", b"\x16\x03", PLAIN[:9], PLAIN[:44]])
)
def test_no_bytes_raise(pieces: list[bytes], start: bytes) -> None:
    flight = FirstFlight()
    outcomes = [flight.feed(piece) for piece in (start, *pieces)]
    known = {Hello, OtherFlight, type(None)}
    assert {type(outcome) for outcome in outcomes} <= known
    assert flight.held == start + b"".join(pieces)


@given(st.integers(0, len(PLAIN) - 1), st.binary(min_size=1, max_size=4), st.integers(1, len(PLAIN)))
def test_a_damaged_hello_raises_nothing_and_names_nobody_else(at: int, damage: bytes, cut: int) -> None:
    damaged = PLAIN[:at] + damage + PLAIN[at + len(damage) :]
    flight = FirstFlight()
    first = flight.feed(damaged[:cut])
    outcome = first or flight.feed(damaged[cut:])
    named = outcome.server_name if isinstance(outcome, Hello) else None
    assert named is None or named.encode() in damaged
