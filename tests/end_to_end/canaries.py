"""Secrets that are easy to find again, and the search for them in every form that a reader can turn back.

Used by test_case_secrets_and_logs_*.py.
"""

from __future__ import annotations

import base64
import urllib.parse

CANARIES = {
    "SECRET": "sk-CANARY-secret/one+1==",
    "CONTROL_TOKEN": "sk-CANARY-control-token-two",
    "CLIENT_TOKEN": "sk-CANARY-client-token-three",
}


def forms(canary: str) -> set[bytes]:
    """The canary and its core, as they are and as readers turn back: base64, hex, percent."""
    found = set()
    for text in (canary, canary[3:-3]):
        raw = text.encode()
        found |= {raw, raw.lower(), raw.upper(), raw[::-1], raw.hex().encode(), raw.hex().upper().encode()}
        found |= {raw.hex(" ").encode(), raw.hex(":").encode()}
        found |= {urllib.parse.quote(raw, safe="").encode(), b"".join(b"%%%02X" % octet for octet in raw)}
        found |= {b"".join(b"%%%02x" % octet for octet in raw), b"".join(b"\\x%02x" % octet for octet in raw)}
        for shift in range(3):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                found.add(encode(b"\0" * shift + raw)[4:-4])
        found |= {base64.b32encode(raw).rstrip(b"=")[:-1]}
    return found


FORMS = frozenset().union(*map(forms, CANARIES.values()))


def leaks(octets: bytes | str) -> list[bytes]:
    raw = octets if isinstance(octets, bytes) else octets.encode("utf-8", "replace")
    return [form for form in FORMS if form in raw]
