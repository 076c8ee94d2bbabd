"""The seccomp filter of a confined command: the rules of syscall_rules.py as a classic BPF program.

Makes bytes and installs nothing, that is launcher.py's. Another architecture's table is never judged by these
numbers: a call through it ends the process. Next: bpf.py (the assembler), syscall_numbers.py (the numbers).
"""

import sys
from collections.abc import Iterator

from egress_proxy.sandbox.bpf import WORD, And, Branch, Comparison, Label, Line, Load, Return, assemble
from egress_proxy.sandbox.syscall_numbers import Machine, number
from egress_proxy.sandbox.syscall_rules import Action, Case, HasAny, Is, Network, Rule, Surroundings, rules

__all__ = ["Network", "Surroundings", "program", "supported"]

# struct seccomp_data, <linux/seccomp.h>. Both machines are little-endian: the low word comes first.
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT, _ARGUMENT_SIZE = 0, 4, 16, 8
# <linux/audit.h>: AUDIT_ARCH_…
_ARCHITECTURES = {Machine.X86_64: 0xC000_003E, Machine.AARCH64: 0xC000_00B7}
# From here on it is the x32 table of an x86-64 kernel: other numbers, same architecture.
_X32 = 0x4000_0000


def supported(machine: str) -> bool:
    """Whether there is a filter for `uname -m`. A 32-bit Python on such a kernel makes foreign calls."""
    return machine in set(Machine) and sys.maxsize > 2**32


def program(machine: str, around: Surroundings) -> bytes:
    """One `struct sock_filter` after another. Raises ValueError for a machine that is not supported."""
    return assemble(_lines(Machine(machine), around))


def _lines(machine: Machine, around: Surroundings) -> Iterator[Line]:
    yield Load(_ARCHITECTURE_AT)
    yield Branch(Comparison.EQUALS, _ARCHITECTURES[machine], yes="native")
    yield Return(Action.KILL.value)
    yield Label("native")
    yield Load(_NUMBER_AT)
    if machine is Machine.X86_64:
        yield Branch(Comparison.AT_LEAST, _X32, no="judged")
        yield Return(Action.KILL.value)
        yield Label("judged")
    for index, rule in enumerate(rules(around)):
        yield from _rule_lines(machine, rule, f"rule {index}")
    yield Return(Action.ALLOW.value)


def _rule_lines(machine: Machine, rule: Rule, name: str) -> Iterator[Line]:
    """The number is loaded before and after: what no rule is about runs through."""
    numbers = [found for call in rule.calls if (found := number(call, machine)) is not None]
    if not numbers:
        return
    body, end = f"{name} applies", f"{name} ends"
    for known in numbers[:-1]:
        yield Branch(Comparison.EQUALS, known, yes=body)
    yield Branch(Comparison.EQUALS, numbers[-1], no=end)
    yield Label(body)
    for index, case in enumerate(rule.cases):
        yield from _case_lines(case, f"{name} case {index}")
    if rule.cases[-1].conditions:
        yield Return(Action.ALLOW.value)
    yield Label(end)


def _case_lines(case: Case, name: str) -> Iterator[Line]:
    other = f"{name} does not fit"
    for index, condition in enumerate(case.conditions):
        yield Load(_ARGUMENTS_AT + _ARGUMENT_SIZE * condition.argument)
        match condition:
            case HasAny(_, bits):
                yield Branch(Comparison.HAS_ANY_BIT, bits, no=other)
            case Is(_, values, mask):
                fits = f"{name} condition {index} holds"
                if mask != WORD:
                    yield And(mask)
                for value in values[:-1]:
                    yield Branch(Comparison.EQUALS, value, yes=fits)
                yield Branch(Comparison.EQUALS, values[-1], no=other)
                yield Label(fits)
    yield Return(case.action.value)
    yield Label(other)
