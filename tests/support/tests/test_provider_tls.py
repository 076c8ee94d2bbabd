"""The provider with TLS, against httpx and the ssl module: names, refusals, and how it ends.

Nothing of the product is used here.
See ../provider.py and ../answers.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support import answers, http
from tests.support.byte_stream import connect, read_some
from tests.support.certificates import CertificateAuthority, server_context
from tests.support.conversation import Script
from tests.support.provider import Provider

GET = b"GET /x HTTP/1.1\r\nHost: api.example\r\n\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def secure(authority: CertificateAuthority) -> Iterator[Provider]:
    with Provider(tls=server_context(authority.leaf("localhost"), ["http/1.1"])) as running:
        yield running


def test_https_works_and_the_server_name_is_recorded(
    secure: Provider, authority: CertificateAuthority
) -> None:
    secure.on("/x", answers.fixed(b"ok"))
    with httpx.Client(verify=authority.client_context(), trust_env=False) as client:
        assert client.get(f"https://localhost:{secure.port}/x").text == "ok"
    record = secure.connections[0]
    assert (record.server_name, record.alpn, record.tls_error) == ("localhost", "http/1.1", None)


def test_a_client_that_refuses_the_certificate_sends_nothing(secure: Provider, tmp_path: Path) -> None:
    stranger = CertificateAuthority(tmp_path).client_context()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"https://localhost:{secure.port}/x", verify=stranger, trust_env=False)
    secure.wait_for_closed(0)
    assert secure.connections[0].tls_error is not None
    assert (secure.octets_received, secure.requests) == (0, [])


@pytest.mark.parametrize(("ending", "clean"), [(answers.close, True), (answers.close_without_notify, False)])
def test_a_tls_end_with_close_notify_is_told_from_one_without(
    secure: Provider, authority: CertificateAuthority, ending: Script, clean: bool
) -> None:
    secure.on("/x", answers.until_close(b"body", ending=ending))
    context = authority.client_context()
    with connect(secure.port) as sock:
        tls = context.wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False)
        with tls:
            tls.sendall(GET)
            http.read_head(tls)
            assert read_some(tls) == b"body"
            if clean:
                assert read_some(tls) == b""
            else:
                with pytest.raises(OSError, match="EOF"):
                    read_some(tls)


def test_idle_tls_connections_close_with_notify_on_demand(
    secure: Provider, authority: CertificateAuthority
) -> None:
    secure.otherwise(answers.fixed(b"ok"))
    with connect(secure.port) as sock:
        context = authority.client_context()
        with context.wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False) as tls:
            tls.sendall(GET)
            assert http.read_response(tls).body == b"ok"
            secure.wait_for_idle()
            assert secure.close_idle() == 1
            assert read_some(tls) == b""


def test_an_early_answer_over_tls_arrives_though_the_body_was_not_read(
    secure: Provider, authority: CertificateAuthority
) -> None:
    secure.on("/x", answers.early(answers.fixed(b"too big", 413)))
    with connect(secure.port) as sock:
        tls = authority.client_context().wrap_socket(sock, server_hostname="localhost")
        with tls:
            tls.sendall(b"POST /x HTTP/1.1\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 100_000)
            assert http.read_response(tls).status == 413
            assert read_some(tls) == b""
    secure.wait_for_closed()
