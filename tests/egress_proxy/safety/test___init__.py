"""The names that hosts import from the package itself, none of which costs anything before it is used."""

import subprocess
import sys

import pytest

import egress_proxy.safety as library
from egress_proxy.safety import (
    CommandSafetyPattern,
    classify_shell_command,
    register_rule,
    unregister_rule,
)


@pytest.mark.parametrize("name", library.__all__)
def test_the_names_of_the_contract_come_from_the_package(name: str) -> None:
    assert getattr(library, name).__name__ == name


def test_a_host_registers_a_rule_by_them() -> None:
    rule = CommandSafetyPattern(
        id="deploys",
        label="deploys",
        description="puts a release into service",
        pattern=r"^deploy-to-production\b",
        category="release",
        severity="critical",
        platform="unix",
    )
    register_rule(rule)
    try:
        assert classify_shell_command("deploy-to-production now", "unix").severity == "critical"
    finally:
        unregister_rule("deploys")
    assert classify_shell_command("deploy-to-production now", "unix").severity == "safe"


def test_other_names_are_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        library.nothing  # noqa: B018


def test_the_package_alone_loads_no_part() -> None:
    loaded = "[name for name in sys.modules if name.startswith(('egress_proxy.safety.', 'tree_sitter'))]"
    script = f"import egress_proxy.safety, sys; print({loaded})"
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
