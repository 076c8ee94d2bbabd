"""The names that hosts import from the package itself, none of which costs anything before it is used."""

import subprocess
import sys

import pytest

import egress_proxy.sandbox as library


@pytest.mark.parametrize("name", library.__all__)
def test_the_names_of_the_contract_come_from_the_package(name: str) -> None:
    assert getattr(library, name).__name__ == name


def test_a_typed_host_may_call_them() -> None:
    """Whether the type checker takes the call is what is tested: it reads this file too."""
    with pytest.raises(ValueError, match="invalid"):
        library.build_seatbelt_profile(allowed_hosts=["not a host"])


def test_other_names_are_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        library.nothing  # noqa: B018


def test_the_package_alone_loads_no_part() -> None:
    loaded = "[name for name in sys.modules if name.startswith('egress_proxy.sandbox.')]"
    script = f"import egress_proxy.sandbox, sys; print({loaded})"
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
