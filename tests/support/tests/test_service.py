"""How the service is started, talked to and ended, proved with a stand-in of the same manners.

Nothing of the product is used here.
See ../service.py and ../program.py.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from tests.support import http
from tests.support.byte_stream import End, read_exactly
from tests.support.deadline import eventually
from tests.support.program import run_cli
from tests.support.service import TOKEN, Service, ServiceDidNotStart

PROGRAM = (sys.executable, str(Path(__file__).with_name("stand_in.py")))
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")


def start(*args: str, token: str | None = None, env: dict[str, str] | None = None) -> Service:
    return Service(*args, program=PROGRAM, token=token, env=env)


def test_the_ports_are_read_from_the_readiness_lines() -> None:
    with start(token=TOKEN) as service:
        assert service.proxy_port == service.control_port > 0
        assert service.is_running()
    assert not service.is_running()
    assert not service.folder.exists()


def test_the_environment_is_clean_and_the_folders_are_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EGRESS_LEAK", "x")
    with start("--allow", "a", token="t0", env={"A_SECRET": "s"}) as service:
        said = json.loads(service.stdout.wait_for_line("SAID ") or "")
        assert said["argv"][:4] == ["--bind", "127.0.0.1:0", "--allow", "a"]
        assert "EGRESS_LEAK" not in said["env"]
        assert {"t0", "s"} <= set(said["env"].values())
        assert said["env"]["HOME"].startswith(str(service.folder))
        assert said["cwd"] == str(service.folder)


def test_connect_gives_the_answer_whole() -> None:
    with start() as service:
        refused = service.connect("evil.test:443")
        assert refused.status_line == "HTTP/1.1 403 Forbidden; egress denied for evil.test:443"
        assert (refused.status, refused.error) == (403, "blocked-by-allowlist")
        assert refused.reason == "Forbidden; egress denied for evil.test:443"
        assert refused.json() == {"error": "blocked-by-allowlist"}
        status_line, _, body, sock = service.connect("ok.example:443", extra=b"HELLO")
        assert (status_line, body) == ("HTTP/1.1 200 Connection Established", b"")
        assert read_exactly(sock, 5) == b"HELLO"
        assert [service.status(f"{host}:443") for host in ("evil", "ok.example")] == [403, 200]
        tunnel = service.tunnel("ok.example:443")
        tunnel.sendall(b"x")
        assert read_exactly(tunnel, 1) == b"x"
        with pytest.raises(AssertionError, match="403"):
            service.tunnel("evil.test:443")


def test_raw_bytes_are_answered_to_the_end_or_the_deadline() -> None:
    with start() as service:
        assert service.raw(b"CONNECT evil.test:1 HTTP/1.1\r\n\r\n").endswith(b"}")
        received, end = service.raw_end(b"CONNECT ok.example:1 HTTP/1.1\r\n\r\n", timeout_s=0.2)
        assert (received.endswith(b"\r\n\r\n"), end) == (True, End.OPEN)
        request = http.request_bytes("POST", "/x", body=b"y")
        assert service.request(request).json()["body"] == "y"


def test_control_calls_carry_the_token_unless_told_otherwise() -> None:
    with start(token=TOKEN) as service:
        heard = service.control("POST", "/allow", {"host": "a.example"}).json()
        assert json.loads(heard["body"]) == {"host": "a.example"}
        assert heard["headers"]["Authorization"] == f"Bearer {TOKEN}"
        assert heard["headers"]["Content-Type"] == "application/json"
        heard = service.control("POST", "/allow", {}, {"content-type": "text/plain"}, authorized=False).json()
        assert heard["headers"]["content-type"] == "text/plain"
        assert not {"Authorization", "Content-Type"} & heard["headers"].keys()
        assert service.allow("b.example", ttl_s=5)["path"] == "/allow"


def test_one_that_refuses_to_start_gives_its_code_and_words() -> None:
    with pytest.raises(ServiceDidNotStart) as refused, start("--refuse"):
        pass
    assert refused.value.exit_code == 1
    assert refused.value.stderr == "error: no such setting\n"


def test_one_that_stays_silent_is_given_up_and_killed() -> None:
    service = Service("--silent", program=PROGRAM, start_s=0.5)
    with pytest.raises(ServiceDidNotStart), service:
        pass
    assert not service.is_running()


@pytest.mark.parametrize(
    ("flag", "message"), [("--trace", "traceback"), ("--bad-exit", "code 1"), ("--die", "code 7")]
)
def test_a_bad_end_fails_the_block(flag: str, message: str) -> None:
    def play() -> None:
        with start(flag) as service:
            if flag == "--die":
                service.wait()

    with pytest.raises(AssertionError, match=message):
        play()


def test_a_test_that_fails_shows_stderr_and_its_own_error() -> None:
    def play() -> None:
        with start("--trace") as service:
            service.stderr.wait_for("Traceback")
            raise ValueError("of the test")

    with pytest.raises(ValueError, match="of the test") as failed:
        play()
    assert any("stderr of the service" in note for note in failed.value.__notes__)


def test_the_end_is_timed() -> None:
    with start() as service:
        assert 0 < service.terminate_and_time() < 5
        with pytest.raises(ConnectionRefusedError):
            service.open()


@linux_only
def test_figures_come_from_proc() -> None:
    with start() as service:
        assert 1_000_000 < service.rss_bytes() < 1_000_000_000
        before = service.open_descriptors()
        service.tunnel("ok.example:443")
        eventually(lambda: service.open_descriptors() == before + 1)
        assert service.cpu_s() > 0


def test_commands_run_to_their_end_with_their_input() -> None:
    code = "import sys; print(sys.stdin.read(), sys.argv[1:]); sys.exit(3)"
    done = run_cli("a", stdin="é", program=(sys.executable, "-c", code))
    assert (done.returncode, done.stdout) == (3, "é ['a']\n")


def test_a_traceback_of_a_command_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="this must be seen"):
        run_cli("--crash", program=PROGRAM)


def test_eventually_has_a_deadline() -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="the moon"):
        eventually(lambda: False, 0.05, "the moon")
    assert time.monotonic() - begun < 1
