"""The numbers of system calls are the kernel's, on both machines."""

import re
from pathlib import Path

import pytest

from egress_proxy.sandbox.syscall_numbers import NAMES, Machine, number

LISTED = Path(__file__).parents[2] / "support/kernel_syscalls.txt"
HEADERS = {
    Machine.X86_64: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    Machine.AARCH64: Path("/usr/include/asm-generic/unistd.h"),
}


def listed(machine: Machine) -> dict[str, int]:
    column = list(Machine).index(machine) + 1
    rows = [line.split() for line in LISTED.read_text().splitlines() if not line.startswith("#")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def in_header(machine: Machine) -> dict[str, int]:
    """Empty where the header is not installed: then the list that ships with the tests is what there is."""
    if not HEADERS[machine].exists():
        return {}
    defined = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", HEADERS[machine].read_text(), re.MULTILINE)
    return {name: int(found) for name, found in defined}


@pytest.mark.parametrize("machine", Machine)
@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_number_is_the_kernels(name: str, machine: Machine) -> None:
    assert number(name, machine) == listed(machine).get(name)
    known = in_header(machine)
    assert name not in known or number(name, machine) == known[name]


def test_the_list_says_what_an_installed_header_says() -> None:
    for machine in Machine:
        known = in_header(machine)
        ours = listed(machine)
        assert {name: known[name] for name in ours.keys() & known} == {
            name: ours[name] for name in ours.keys() & known
        }


def test_a_name_that_is_no_call_is_an_error() -> None:
    with pytest.raises(KeyError):
        number("opeen", Machine.X86_64)
