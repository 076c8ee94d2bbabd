"""The numbers that scripts rely on."""

from egress_proxy.cli.exit_codes import ExitCode, VerbFailed


def test_the_codes_are_those_of_the_contract() -> None:
    named = {code.name: code.value for code in ExitCode}
    assert named == {
        "OK": 0,
        "FAILURE": 1,
        "USAGE": 2,
        "REFUSED": 3,
        "TOKEN": 4,
        "INTERRUPTED": 130,
        "BROKEN_PIPE": 141,
    }


def test_a_failure_carries_its_code() -> None:
    failed = VerbFailed(ExitCode.TOKEN, "no token")
    assert (failed.code, str(failed)) == (4, "no token")
