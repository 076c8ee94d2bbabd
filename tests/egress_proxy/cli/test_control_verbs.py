"""`allow`, `revoke`, `grants` against a running service: what they print, and the code of each failure."""

import socket
import time
from collections.abc import Iterator

import pytest

from control_api.models import AllowAnswer, GrantList, RevokeAnswer
from egress_proxy.cli.arguments import PARSERS
from egress_proxy.cli.control_verbs import PORT_VARIABLE, TOKEN_VARIABLE, control_verb
from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from tests.egress_proxy.cli.command import Running, service

TOKEN = "CANARY-control"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    env = {"TOK": TOKEN, "BUILD": "client", "EGRESS_CLIENT": '[{"name": "build", "token": "env:BUILD"}]'}
    denied = ("--deny", "denied.example", "--deny", "**.tracker.example:443")
    with service("--allow-none", *denied, "--control-token-env", "TOK", env=env, prints=2) as started:
        yield started


class Verb:
    """Runs verbs as a user of the running service would."""

    def __init__(self, port: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.environ = {PORT_VARIABLE: port, TOKEN_VARIABLE: TOKEN}
        self._capsys = capsys

    def __call__(self, verb: str, *argv: str) -> str:
        arguments = PARSERS[verb](f"egress-proxy {verb}").parse(argv)
        assert control_verb(verb, arguments, self.environ) == ExitCode.OK
        captured = self._capsys.readouterr()
        assert captured.err == ""
        return captured.out

    def failure(self, verb: str, *argv: str) -> VerbFailed:
        with pytest.raises(VerbFailed) as failed:
            self(verb, *argv)
        assert TOKEN not in str(failed.value)
        assert str(failed.value).isprintable()
        return failed.value


@pytest.fixture
def verb(running: Running, capsys: pytest.CaptureFixture[str]) -> Verb:
    return Verb(running.control_port, capsys)


def granted(verb: Verb, *argv: str) -> AllowAnswer:
    return AllowAnswer.model_validate_json(verb("allow", *argv, "--json"))


def test_a_grant_is_made_listed_and_taken_back(verb: Verb) -> None:
    out = verb(
        "allow", "a.example:22", "--ttl", "600", "--max-uses", "2", "--client", "build", "--reason", "docs"
    )
    word, host, *_, grant_id = out.split()
    assert (word, host) == ("allowed", "a.example")
    assert " ports 22 " in out
    (row,) = [line for line in verb("grants").splitlines() if line.startswith(grant_id)]
    assert row.split()[1:4] == ["a.example", "22", "build"]
    assert "s, 2 uses" in row
    assert row.endswith("  docs")
    assert verb("revoke", grant_id) == f"revoked  {grant_id}  tunnels closed: 0\n"
    assert grant_id not in verb("grants")


def test_every_grant_is_printed_with_the_id_that_revokes_it(verb: Verb) -> None:
    *words, grant_id = verb("allow", "plain.example").split()
    assert words == ["allowed", "plain.example", "ports", "80,443"]
    assert granted(verb, "plain.example").id == grant_id  # the same entry twice is one grant
    assert verb("revoke", grant_id).startswith(f"revoked  {grant_id}")


@pytest.mark.parametrize(("ttl", "seconds"), [("90", 90), ("15m", 900), ("1h", 3600), ("2d", 172_800)])
def test_a_time_to_live_has_a_unit_or_is_in_seconds(verb: Verb, ttl: str, seconds: int) -> None:
    before = time.time()
    ends = granted(verb, f"t{ttl}.example", "--ttl", ttl).expires_at
    assert ends is not None
    assert before + seconds <= ends + 1e-3
    assert ends <= time.time() + seconds


def test_json_has_the_schemas_of_the_api(verb: Verb) -> None:
    answer = granted(verb, "j.example", "--ttl", "600")
    assert answer.id is not None
    listed = GrantList.model_validate_json(verb("grants", "--json"))
    assert answer.id in {grant.id for grant in listed.grants}
    assert RevokeAnswer.model_validate_json(verb("revoke", answer.id, "--json")).tunnels_closed == 0


@pytest.mark.parametrize("entry", ["*", "*.com", "a,b", "https://a.example", "a.example:0", ""])
def test_a_bad_entry_is_a_usage_error(verb: Verb, entry: str) -> None:
    assert verb.failure("allow", entry).code is ExitCode.USAGE


@pytest.mark.parametrize("entry", ["169.254.169.254", "metadata.google.internal"])
def test_what_is_never_granted_is_refused_by_policy(verb: Verb, entry: str) -> None:
    assert verb.failure("allow", entry).code is ExitCode.REFUSED


@pytest.mark.parametrize(
    ("entry", "rule"),
    [("denied.example", "denied.example:*"), ("*.tracker.example", "**.tracker.example:443")],
)
def test_what_a_deny_entry_covers_is_refused_by_policy_and_the_entry_named(
    verb: Verb, entry: str, rule: str
) -> None:
    failure = verb.failure("allow", entry)
    assert failure.code is ExitCode.REFUSED
    assert f"the deny entry {rule} covers it" in str(failure)


def test_an_unknown_client_is_a_usage_error_and_those_that_are_known_are_named(verb: Verb) -> None:
    failure = verb.failure("allow", "a.example", "--client", "biuld")
    assert failure.code is ExitCode.USAGE
    assert "known: build" in str(failure)


def test_a_grant_that_is_not_there_cannot_be_taken_back(verb: Verb) -> None:
    assert verb.failure("revoke", "g-none").code is ExitCode.FAILURE


@pytest.mark.parametrize("token", [None, "", "wrong", "CANARY-controlé", "a b"])
def test_a_wrong_or_missing_token_has_its_own_code(verb: Verb, token: str | None) -> None:
    del verb.environ[TOKEN_VARIABLE]
    if token is not None:
        verb.environ[TOKEN_VARIABLE] = token
    failed = verb.failure("grants")
    assert failed.code is ExitCode.TOKEN
    assert f"${TOKEN_VARIABLE}" in str(failed)


def test_port_and_token_may_come_from_flags(verb: Verb, running: Running) -> None:
    verb.environ = {"MINE": TOKEN}
    assert verb("grants", "--control-port", running.control_port, "--control-token-env", "MINE") is not None


def test_port_and_token_have_a_second_spelling_which_the_first_outweighs(
    verb: Verb, running: Running
) -> None:
    verb.environ = {"EGRESS_CONTROL_PORT": running.control_port, "EGRESS_CONTROL_TOKEN": TOKEN}
    verb("grants")
    verb.environ |= {PORT_VARIABLE: "", TOKEN_VARIABLE: ""}
    verb("grants")
    verb.environ |= {TOKEN_VARIABLE: "another"}
    assert verb.failure("grants").code is ExitCode.TOKEN
    verb.environ = {"EGRESS_CONTROL_PORT": "x", "EGRESS_CONTROL_TOKEN": TOKEN}
    assert "EGRESS_CONTROL_PORT must be a port" in str(verb.failure("grants"))


def test_without_a_port_the_next_command_is_named(verb: Verb) -> None:
    del verb.environ[PORT_VARIABLE]
    failed = verb.failure("grants")
    assert failed.code is ExitCode.USAGE
    assert "--control-port" in str(failed)


@pytest.mark.parametrize("port", ["x", "0", "70000", "-1"])
def test_a_bad_port_is_a_usage_error(verb: Verb, port: str) -> None:
    assert verb.failure("grants", f"--control-port={port}").code is ExitCode.USAGE


def test_a_service_that_is_not_there_is_unreachable(verb: Verb) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        verb.environ[PORT_VARIABLE] = str(listener.getsockname()[1])
    failed = verb.failure("grants")
    assert failed.code is ExitCode.FAILURE
    assert "EGRESS_CONTROL_PORT=" in str(failed)


def test_the_data_port_is_no_control_port(verb: Verb, running: Running) -> None:
    verb.environ[PORT_VARIABLE] = running.data_port
    assert verb.failure("grants").code in (ExitCode.FAILURE, ExitCode.TOKEN)


def test_a_grant_that_is_taken_back_without_a_line_of_it_is_gone_and_the_caller_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    env = {"TOK": TOKEN, "EGRESS_AUDIT__PATH": "/dev/full", "EGRESS_AUDIT__ON_ERROR": "continue"}
    with service("--allow-none", "--control-token-env", "TOK", env=env, prints=2) as started:
        verb = Verb(started.control_port, capsys)
        grant_id = granted(verb, "a.example", "--reason", "x").id
        arguments = PARSERS["revoke"]("egress-proxy revoke").parse([str(grant_id)])
        assert control_verb("revoke", arguments, verb.environ) == ExitCode.OK
        captured = capsys.readouterr()
        assert captured.out.startswith(f"revoked  {grant_id}")
        assert captured.err.startswith("warning: ")
        assert captured.err.count("\n") == 1
        assert verb("grants") == ""
