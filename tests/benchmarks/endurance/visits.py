"""What clients of an inject rule set out to do: requests, one or several on a connection, by both doors.

Drawn from a seed. Next: killing_injected.py (does it and judges the answers), obedient_upstream.py (what
their paths say).
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.benchmarks.endurance.leaving import LONGEST_S, End
from tests.benchmarks.endurance.obedient_upstream import ANSWERS, Deed, Then, Wish, content, times_allowed
from tests.support.byte_stream import BLOCK_BYTES
from tests.support.http import Response, request_bytes

HOST = "127.0.0.1"
_MOST_REQUESTS = 5
# A large one is more than all the buffers on its way take, where the reader is slow.
_SMALL_BYTES, _LARGE_BYTES = 3_000, 128 * BLOCK_BYTES
# HEAD has but a head; half of a body is none less for it.
_FOR_HEAD = (Deed.LENGTH, Deed.CHUNKS, Deed.UNTIL_CLOSE, Deed.BODILESS)
_FINITE = tuple(deed for deed in Deed if deed not in (Deed.FLOOD, Deed.WAIT))
_LARGE = (Deed.LENGTH, Deed.CHUNKS, Deed.UNTIL_CLOSE, Deed.HALF_LENGTH, Deed.HALF_CHUNK)


class Door(enum.StrEnum):
    ABSOLUTE = "absolute form"
    CONNECT = "CONNECT"


@dataclass(frozen=True, slots=True)
class Request:
    wish: Wish
    method: str
    body_bytes: int
    version: str

    def octets(self, door: Door) -> bytes:
        target = self.wish.path if door is Door.CONNECT else f"http://{HOST}{self.wish.path}"
        body = content(self.wish.number, self.body_bytes)
        return request_bytes(self.method, target, [("Host", HOST)], body, self.version)

    def __str__(self) -> str:
        return f"{self.method} {self.wish.path} of {self.version} with {self.body_bytes} bytes"

    @property
    def may_be_complete(self) -> bool:
        wish = self.wish
        cut = wish.deed is Deed.UNTIL_CLOSE and wish.then is Then.RESET and self.method != "HEAD"
        return wish.deed in ANSWERS and not cut

    @property
    def gets_an_answer(self) -> bool:
        """Who stays gets one for certain. A reset may overtake it."""
        return self.wish.deed in ANSWERS and self.wish.then is not Then.RESET

    @property
    def gets_its_own(self) -> bool:
        """And not a refusal, which others get whose kept connection had just died."""
        return self.gets_an_answer and times_allowed(self.method, self.body_bytes) > 1

    def ends_connection(self, response: Response) -> bool:
        return self.version == "HTTP/1.0" or response.value("Connection") == "close"


@dataclass(frozen=True, slots=True)
class Visit:
    """One client's connection. ``end`` None: it stays until it has all its answers."""

    door: Door
    requests: tuple[Request, ...]
    is_pipelined: bool
    is_in_pieces: bool  # it writes twice where it could once
    is_slow: bool  # it reads late, and there is little room for what it has not read yet
    ends_direction: bool  # once all is sent: such a client may be waiting
    end: End | None
    stay_s: float
    last_share: float  # of the last request, its head included: the rest of it is not sent


def drawn_visit(rng: random.Random, numbers: Iterator[int]) -> Visit:
    end = rng.choice((None, None, None, *End))
    door = rng.choice(list(Door))
    # Without lengths nothing but a reset tells them that an answer was cut.
    is_old = door is Door.ABSOLUTE and rng.random() < 0.3
    is_pipelined = rng.random() < 0.4
    count = 1 if is_old else rng.randint(1, _MOST_REQUESTS)
    requests = [_request(rng, next(numbers), end is None, is_pipelined, is_old) for _ in range(count)]
    return Visit(
        door,
        tuple(requests),
        is_pipelined,
        is_in_pieces=rng.random() < 0.2,
        is_slow=rng.random() < 0.6,
        ends_direction=end is None and is_pipelined and rng.random() < 0.3,
        end=end,
        stay_s=rng.random() * LONGEST_S,
        last_share=rng.random() if end is not None and rng.random() < 0.2 else 1.0,
    )


def _request(rng: random.Random, number: int, stays: bool, is_pipelined: bool, is_old: bool) -> Request:
    method = rng.choice(("GET", "GET", "GET", "POST", "POST", "PUT", "DELETE", "HEAD"))
    deeds = _FOR_HEAD if method == "HEAD" else _FINITE if stays else tuple(Deed)
    # Most go well, so that connections are kept.
    well = rng.random() < (0.3 if is_old else 0.7)
    deed = rng.choice([one for one in deeds if one in ANSWERS] if well else deeds)
    then = rng.choices(list(Then), (7, 1, 1, 1))[0]
    is_large = rng.random() < 0.04
    # One that writes while it is not read, and reads while nothing is written, would wait for itself.
    more_up = _LARGE_BYTES if is_large and not is_pipelined and deed is not Deed.EARLY else 0
    more_down = _LARGE_BYTES if is_large and deed in _LARGE else 0
    has_body = method in ("POST", "PUT") and rng.random() < 0.7
    body_bytes = rng.randrange(_SMALL_BYTES) + more_up if has_body else 0
    wish = Wish(number, deed, then, rng.randrange(_SMALL_BYTES) + more_down)
    return Request(wish, method, body_bytes, "HTTP/1.0" if is_old else "HTTP/1.1")
