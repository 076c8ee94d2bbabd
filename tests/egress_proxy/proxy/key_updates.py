"""What a TLS 1.3 server sends, sealed by hand from its logged secret: Python's `ssl` sends no key updates.

No expectations here. Once a script seals by hand its `SSLSocket` is good for reading only. RFC 8446: 4.6.3
(the message), 5.2 and 5.3 (records), 7.2 (the next secret).
"""

import ssl
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

_CIPHER, _HASH = "TLS_AES_256_GCM_SHA384", SHA384()
_HANDSHAKE, _APPLICATION = 22, 23
_SECRET_LINE = "SERVER_TRAFFIC_SECRET_0 "


class Sealer:
    """Records of a server that has sent none since its handshake: no tickets, no bytes."""

    def __init__(self, sock: ssl.SSLSocket, keylog: Path) -> None:
        cipher = sock.cipher()
        assert cipher is not None
        assert cipher[0] == _CIPHER, cipher
        line = next(line for line in keylog.read_text().splitlines() if line.startswith(_SECRET_LINE))
        self._use(bytes.fromhex(line.rpartition(" ")[2]))

    def sealed(self, data: bytes) -> bytes:
        """A record of application bytes."""
        return self._record(_APPLICATION, data)

    def key_update(self, *, is_requested: bool = True) -> bytes:
        """A record that announces the next key, and may ask the other side for its own."""
        record = self._record(_HANDSHAKE, b"\x18\x00\x00\x01" + bytes([is_requested]))
        self._use(_expanded(self._secret, b"traffic upd", _HASH.digest_size))
        return record

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._aead = AESGCM(_expanded(secret, b"key", 32))
        self._iv = int.from_bytes(_expanded(secret, b"iv", 12), "big")
        self._count = 0

    def _record(self, kind: int, content: bytes) -> bytes:
        inner = content + bytes([kind])
        header = b"\x17\x03\x03" + (len(inner) + 16).to_bytes(2, "big")
        nonce = (self._iv ^ self._count).to_bytes(12, "big")
        self._count += 1
        return header + self._aead.encrypt(nonce, inner, header)


def _expanded(secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label without a context (7.1)."""
    label = b"tls13 " + label
    about = length.to_bytes(2, "big") + bytes([len(label)]) + label + b"\x00"
    return HKDFExpand(algorithm=_HASH, length=length, info=about).derive(secret)
