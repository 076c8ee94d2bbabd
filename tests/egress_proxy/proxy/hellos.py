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
