"""Inputs for the five ways, drawn from a seed: requests as clients send them, and what goes wrong with them.

Bytes alone; ways.py plays them. Whatever has shown a difference is a file in seeds/ways.
"""

from __future__ import annotations

import random

from tests.fuzz.ways import ECHO, LISTED, OWN, TOKEN

_TARGETS = (
    *(ECHO, ECHO, LISTED.encode() + b":443", b"127.0.0.1:1", OWN, b"127.0.0.1:80", b"evil.test:443"),
    *(b"denied.test:443", b"169.254.169.254:80", b"none.test:443", b"127.1:443", b"[::1]:1", b"a:0", b"@:1"),
)
_URLS = (
    *(b"http://127.0.0.1/", b"http://127.0.0.1/path?q=1", b"http://127.0.0.1:81/", b"https://127.0.0.1/"),
    *(
        b"http://evil.test/",
        b"http://u@127.0.0.1/",
        b"http://127.0.0.1/../x",
        b"/",
        b"*",
        b"/inject/provider/",
    ),
    *(
        b"http://" + LISTED.encode() + b"/",
        b"http://" + OWN + b"/",
        b"http://denied.test/",
        b"x://",
        b"http:///",
    ),
)
_METHODS = (b"GET", b"GET", b"POST", b"HEAD", b"PUT", b"TRACE", b"OPTIONS", b"get", b"!", b"PRI")
_VERSIONS = (b"HTTP/1.1",) * 8 + (
    b"HTTP/1.0",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"HTTP/1.12",
    b"http/1.1",
    b"HTTP/0.9",
)
_LINES = (
    *(b"Host: 127.0.0.1", b"Host: evil.test", b"User-Agent: x/1", b"Accept: */*", b"Connection: close"),
    *(b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: +5", b"Content-Length: 5, 5"),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Expect: 100-continue", b"Expect: tea"),
    *(b"Upgrade: websocket", b"Connection: upgrade", b"Authorization: Bearer mine", b"Proxy-Connection: x"),
    *(
        b"Proxy-Authorization: Basic eDp5",
        b" folded",
        b"no colon",
        b"a : b",
        b": none",
        b"X: \x80\xff",
        b"X:\ty",
    ),
    *(
        b"Proxy-Authorization: Bearer " + TOKEN.encode(),
        b"X: a\x00b",
        b"X: a\rb",
        b"X: a\nb",
        b"X: " + b"l" * 4000,
    ),
)
_BEHIND = (
    *(
        b"",
        b"",
        b"",
        b"hello",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"GET http://127.0.0.1/2 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ),
    *(
        b"CONNECT " + ECHO + b" HTTP/1.1\r\n\r\nx",
        b"\x16\x03\x01\x00\x05hello",
        b"\r\n",
        b"\x00",
        b"x" * 20_000,
    ),
)
_OPENINGS = (
    *(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03", b"\x05\x01\x00", b"\x04\x01\x01\xbb\x7f\x00\x00\x01\x00"),
    *(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"hello\n",
        b"\r\n",
        b"\n",
        b" ",
        b"~",
        b"\xff",
        b"GET",
    ),
)
_NASTY = b'\x00\t\n\r "#%*,./:;?@[\\]_-0Aa~!\x7f\x80\xad\xff'
_HEAD_LIMIT = 16_384


def drawn_input(rng: random.Random) -> bytes:
    if rng.random() < 0.06:
        return rng.choice(_OPENINGS) + (_request(rng) if rng.random() < 0.6 else b"")
    data = _request(rng)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        data = _changed(rng, data)
    return data


def _request(rng: random.Random) -> bytes:
    if rng.random() < 0.45:
        first = b"CONNECT " + rng.choice(_TARGETS)
    else:
        first = rng.choice(_METHODS) + b" " + rng.choice(_URLS if rng.random() < 0.9 else _TARGETS)
    # Most are in order but for one thing: two faults hide each other.
    usual = rng.random() < 0.6
    lines = [first + b" " + (b"HTTP/1.1" if usual else rng.choice(_VERSIONS)), b"Host: 127.0.0.1"]
    lines += rng.choices(_LINES, k=rng.choice((0, 0, 1, 2, 4)))
    if rng.random() < 0.06:
        lines.append(b"Long: " + b"l" * _filling(rng, sum(map(len, lines)) + 2 * len(lines)))
    end = rng.choice((b"\r\n",) * 12 + (b"\n", b"\r"))
    data = end.join(lines) + rng.choice((end * 2,) * 8 + (end, b"", b"\r\n\n"))
    behind = rng.choice(_BEHIND)
    return data + behind + (rng.choice(_BEHIND) if rng.random() < 0.2 else b"")


def _filling(rng: random.Random, used: int) -> int:
    """So long that the head is about as long as it may be, or much longer."""
    return max(0, _HEAD_LIMIT - used - 10 + rng.choice((0, 1, 2, 3, 4, 5, 8, 40, 5_000, 60_000)))


def _changed(rng: random.Random, data: bytes) -> bytes:
    """One byte changed, put in or taken out; a stretch of it doubled or taken out; cut."""
    at = rng.randrange(min(len(data), rng.choice((30, 300, 30_000))) + 1)
    stretch = data[at : at + rng.randrange(1, 12)]
    byte = bytes([rng.choice(_NASTY)])
    return rng.choice(
        (
            *(data[:at] + byte + data[at + 1 :], data[:at] + byte + data[at:], data[:at] + data[at + 1 :]),
            *(data[:at] + stretch + data[at:], data[:at] + data[at + len(stretch) :], data[:at]),
        )
    )
