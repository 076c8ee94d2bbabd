"""The certificates against OpenSSL's own verification, in a TLS handshake over a socket pair.

Nothing of the product is used here.
See ../certificates.py.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path

import pytest

from tests.support.certificates import CertificateAuthority, Leaf, server_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("ca"))


def shake_hands(authority: CertificateAuthority, leaf: Leaf, name: str) -> None:
    """A handshake of a verifying client with a server that shows ``leaf``."""
    here, there = socket.socketpair()

    def answer() -> None:
        with contextlib.suppress(OSError):
            server_context(leaf).wrap_socket(there, server_side=True).close()

    server = threading.Thread(target=answer)
    server.start()
    try:
        with here:
            here.settimeout(5)
            authority.client_context().wrap_socket(here, server_hostname=name).close()
    finally:
        server.join(5)
        there.close()


def test_a_leaf_is_accepted_for_each_of_its_names(authority: CertificateAuthority) -> None:
    leaf = authority.leaf("api.ok.example", "*.wild.example", "127.0.0.1")
    for name in ("api.ok.example", "a.wild.example", "127.0.0.1"):
        shake_hands(authority, leaf, name)


@pytest.mark.parametrize(
    ("kind", "code"),
    [("expired", 10), ("not_yet_valid", 9), ("self_signed", 18), ("foreign", 20)],
)
def test_a_bad_leaf_is_refused_for_its_own_reason(
    authority: CertificateAuthority, kind: str, code: int
) -> None:
    leaf: Leaf = getattr(authority, kind)("api.ok.example")
    with pytest.raises(ssl.SSLCertVerificationError) as refused:
        shake_hands(authority, leaf, "api.ok.example")
    assert refused.value.verify_code == code  # X509_V_ERR_…, x509_vfy.h


def test_a_leaf_for_another_name_is_refused(authority: CertificateAuthority) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(authority, authority.wrong_name(), "api.ok.example")


def test_the_authority_is_a_file_that_others_can_trust(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    assert authority.pem_path == tmp_path / "ca.pem"
    assert authority.pem_path.read_text().startswith("-----BEGIN CERTIFICATE-----")
