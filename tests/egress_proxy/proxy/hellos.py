"""ClientHellos for the tests beside this file: written by OpenSSL as a client, then cut or changed by bytes.

Nothing is expected of them here. Used by test_client_hello.py.
"""

import contextlib
import ssl
import warnings
from collections.abc import Sequence

NAME = "ok.example"
_RECORD_HEADER = 5


def hello(
    name: str | None = NAME,
    *,
    only: ssl.TLSVersion | None = None,
    alpn: Sequence[str] = (),
) -> bytes:
    """The first flight of a client that asks for ``name`` (None: for nobody), in TLS records."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if only is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # old versions are the point
            context.minimum_version = context.maximum_version = only
        context.set_ciphers("ALL:@SECLEVEL=0")
    if alpn:
        context.set_alpn_protocols(list(alpn))
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def long_hello() -> bytes:
    """Some 20 KB, as a client with many post-quantum shares or protocols may send; two records."""
    return hello(alpn=[f"{number:0>200}" for number in range(100)])


def long_unfinished_hello(record_bytes: int, count: int) -> list[bytes]:
    """The first records of a hello that has one more; each carries so much."""
    message = b"\x01" + (record_bytes * (count + 1)).to_bytes(3, "big")
    message += bytes(record_bytes * count - len(message))
    header = b"\x16\x03\x01" + record_bytes.to_bytes(2, "big")
    return [header + message[at : at + record_bytes] for at in range(0, len(message), record_bytes)]


def renamed(flight: bytes, name: bytes, old: bytes = NAME.encode()) -> bytes:
    """The flight asking for other bytes of equal length."""
    if len(name) != len(old) or flight.count(old) != 1:
        raise ValueError("a name can only be replaced by one of its length")
    return flight.replace(old, name)


def in_two_records(flight: bytes, cut: int) -> bytes:
    """The same handshake message in two TLS records, the first with ``cut`` bytes of it."""
    message = flight[_RECORD_HEADER:]
    return b"".join(
        flight[:3] + len(part).to_bytes(2, "big") + part for part in (message[:cut], message[cut:])
    )
