"""A certificate authority of the tests' own, and leaves of it: good, expired, self-signed, foreign.

Everything is written to one folder as PEM, since the product and other clients read files.
Keys are fresh on every run; nothing here is worth keeping.
"""

from __future__ import annotations

import datetime
import itertools
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A server certificate as files: the chain (leaf first) and its key."""

    names: tuple[str, ...]
    chain_path: Path
    key_path: Path


class CertificateAuthority:
    """``pem_path`` is what a client must trust, for example by ``SSL_CERT_FILE``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._ca = trustme.CA()
        self._foreign = trustme.CA()
        self.pem_path = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.pem_path)

    def leaf(self, *names: str) -> Leaf:
        """Valid now, for these DNS names and IP addresses (a wildcard may be among them)."""
        return self._written(names, self._ca.issue_cert(*names))

    def expired(self, *names: str) -> Leaf:
        """Right name, right authority; ran out yesterday."""
        now = datetime.datetime.now(datetime.UTC)
        cert = self._ca.issue_cert(*names, not_before=now - 9 * _DAY, not_after=now - _DAY)
        return self._written(names, cert)

    def not_yet_valid(self, *names: str) -> Leaf:
        now = datetime.datetime.now(datetime.UTC)
        cert = self._ca.issue_cert(*names, not_before=now + _DAY, not_after=now + 9 * _DAY)
        return self._written(names, cert)

    def foreign(self, *names: str) -> Leaf:
        """Right name; signed by an authority that nobody trusts."""
        return self._written(names, self._foreign.issue_cert(*names))

    def wrong_name(self) -> Leaf:
        """Right authority; for a name that no test asks for."""
        return self.leaf("wrong-name.invalid")

    def self_signed(self, *names: str) -> Leaf:
        """Right name; its own issuer."""
        key = ec.generate_private_key(ec.SECP256R1())
        pem = _self_signed(key, names).public_bytes(serialization.Encoding.PEM)
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return self._write(names, pem, secret)

    def client_context(self) -> ssl.SSLContext:
        """Trusts this authority and no other; verifies names."""
        return ssl.create_default_context(cafile=str(self.pem_path))

    def _written(self, names: Sequence[str], cert: trustme.LeafCert) -> Leaf:
        chain = b"".join(blob.bytes() for blob in cert.cert_chain_pems)
        return self._write(names, chain, cert.private_key_pem.bytes())

    def _write(self, names: Sequence[str], chain: bytes, key: bytes) -> Leaf:
        number = next(self._numbers)
        chain_path = self._folder / f"leaf-{number}.pem"
        key_path = self._folder / f"leaf-{number}.key"
        chain_path.write_bytes(chain)
        key_path.write_bytes(key)
        return Leaf(tuple(names), chain_path, key_path)


def server_context(leaf: Leaf, alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """A context for a server that shows ``leaf``; it offers ``alpn``, if any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf.chain_path, leaf.key_path)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def _self_signed(key: ec.EllipticCurvePrivateKey, names: Sequence[str]) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 9 * _DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), False)
        .sign(key, hashes.SHA256())
    )
