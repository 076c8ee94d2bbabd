"""Where everything listens, and the folders: one for what is kept between runs, one for this run.

All of it is on one loopback address of its own, so that no other service of the machine is in the way.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from tests.support.certificates import CertificateAuthority

ADDRESS = "127.77.0.1"
PROXY_PORT = 8899
HTTP_PORT = 8081
TLS_PORT = 8443
# Tunnels to port 443 have their first flight judged: without root the benchmark leaves that out, and says so.
PLAIN_PORT = 443 if os.geteuid() == 0 else 8444
NAME = "upstream.bench.test"  # in the certificate: not every peer compares addresses
SECRET = "Bearer bench-secret"
SECRET_VARIABLE = "BENCH_SECRET"

PROXY = f"{ADDRESS}:{PROXY_PORT}"
TARGET = f"{ADDRESS}:{PLAIN_PORT}"
_SYSTEM_ROOTS = Path("/etc/ssl/certs/ca-certificates.crt")


def cache_folder() -> Path:
    """Compiled programs and the peers' virtual environments."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root, "steerable-egress-benchmarks")


def find(program: str) -> str | None:
    """Its absolute path. Debian keeps servers in a folder that is not on every user's PATH."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    return found and os.path.abspath(found)


def is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((ADDRESS, port))
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of one run, and what lies in it for everyone: certificates and a first flight."""

    folder: Path
    certificate: Path
    key: Path
    roots: Path  # the system's and the upstream's: what a real installation would load
    hello: Path

    def substitutions(self) -> dict[str, str]:
        """What `$name` stands for in a peer's settings and command line."""
        return {
            "address": ADDRESS,
            "escaped": ADDRESS.replace(".", "\\."),
            "port": str(PROXY_PORT),
            "plain": str(PLAIN_PORT),
            "tls": str(TLS_PORT),
            "name": NAME,
            "secret": SECRET,
            "variable": SECRET_VARIABLE,
            "roots": str(self.roots),
            "folder": str(self.folder),
        }


def make_place(folder: Path) -> Place:
    folder.chmod(0o755)  # some peers change to a user of their own
    authority = CertificateAuthority(folder)
    leaf = authority.leaf(NAME, ADDRESS)
    system = _SYSTEM_ROOTS.read_bytes() if _SYSTEM_ROOTS.exists() else b""
    roots = folder / "roots.pem"
    roots.write_bytes(system + authority.pem_path.read_bytes())
    hello = folder / "hello"
    hello.write_bytes(client_hello())
    return Place(folder, leaf.chain_path, leaf.key_path, roots, hello)


def client_hello() -> bytes:
    """A first flight without a server name, for the target is an address."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without an answer cannot end")
