"""`python -m tests.benchmarks` in an environment that lacks what the tests need."""

import pytest

from tests.benchmarks.__main__ import imported


def test_what_is_not_installed_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(SystemExit) as ended:
        imported("nowhere_to_be_found")
    message = str(ended.value)
    assert message.startswith("error: nowhere_to_be_found is not installed here")
    assert "sh tests/run.sh" in message
    assert "pip install '.[test]'" in message
