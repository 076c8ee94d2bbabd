"""The caller's end of an attach connection: who is no proxy is found out, and its end is always known."""

import socket
import threading
from pathlib import Path

import pytest

from egress_proxy.core.attach import HostUse, Refused, Report, encode_answer, encode_report
from egress_proxy.sandbox.attach_client import Attachment
from egress_proxy.sandbox.spec import SandboxUnavailable
from tests.support.attach_peer import REPORT, WELCOME, attach_peer


def test_a_welcome_names_client_and_port(tmp_path: Path) -> None:
    with attach_peer(tmp_path, WELCOME) as path, Attachment(path, "make") as attachment:
        assert (attachment.welcome.client, attachment.welcome.port) == ("sandbox-1", 8899)


def test_the_end_brings_the_report(tmp_path: Path) -> None:
    report = Report((HostUse("a.test", 443, 1, 2, 3),))
    with attach_peer(tmp_path, WELCOME, encode_report(report)) as path, Attachment(path) as attachment:
        assert attachment.finish() == report


@pytest.mark.parametrize("answer", [b"", b"{", b"{}\n", REPORT[:-1]], ids=repr)
def test_a_proxy_that_is_gone_gives_no_report(tmp_path: Path, answer: bytes) -> None:
    with attach_peer(tmp_path, WELCOME, answer) as path, Attachment(path) as attachment:
        assert attachment.finish() is None


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"{}\n", b"x" * 5000, WELCOME[:-1]])
def test_who_is_no_proxy_is_refused(tmp_path: Path, answer: bytes) -> None:
    words = "no proxy answers at .*attach.sock: .*egress-proxy serve"
    with attach_peer(tmp_path, answer) as path, pytest.raises(SandboxUnavailable, match=words):
        Attachment(path)


def test_a_no_is_passed_on(tmp_path: Path) -> None:
    words = "the proxy takes no sandbox: it is draining"
    refusal = encode_answer(Refused("it is draining"))
    with attach_peer(tmp_path, refusal) as path, pytest.raises(SandboxUnavailable, match=words):
        Attachment(path)


def test_a_no_that_was_said_before_the_hello_is_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "attach.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def turn_away() -> None:
            with listener.accept()[0] as sock:
                sock.sendall(encode_answer(Refused("it takes others")))

        thread = threading.Thread(target=turn_away)
        thread.start()
        try:
            with pytest.raises(SandboxUnavailable, match="the proxy takes no sandbox: it takes others"):
                Attachment(str(path))
        finally:
            thread.join()


def test_nobody_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="no such file or directory"):
        Attachment(str(tmp_path / "none.sock"))
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(left))
    with pytest.raises(SandboxUnavailable, match="connection refused"):
        Attachment(str(left))


def test_a_path_that_no_socket_can_have_is_said(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="too long"):
        Attachment(str(tmp_path / ("x" * 200)))
