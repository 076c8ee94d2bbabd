"""A machine for classic BPF filters of system calls: runs a program's bytes as the kernel would.

Knows the opcodes of <linux/bpf_common.h> that seccomp takes, not the ones that an assembler of ours makes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_INSTRUCTION = struct.Struct("<HBBI")
_WORD = 0xFFFF_FFFF


def seccomp_data(architecture: int, number: int, arguments: Sequence[int]) -> bytes:
    """`struct seccomp_data`; arguments are 64-bit words, missing ones are 0."""
    six = [*arguments, *[0] * (6 - len(arguments))]
    words = [argument & 0xFFFF_FFFF_FFFF_FFFF for argument in six]
    return struct.pack("<iIQ6Q", number, architecture, 0x7000, *words)


def run(program: bytes, given: bytes) -> int:
    """What the program returns. ValueError where the kernel would refuse to install it."""
    instructions: list[tuple[int, int, int, int]] = list(_INSTRUCTION.iter_unpack(program))
    accumulator: int = 0
    at = 0
    while True:
        if at >= len(instructions):
            raise ValueError("ran past the end")
        code, yes, no, operand = instructions[at]
        at += 1
        match code:
            case 0x20:  # A = word at k
                if operand % 4 or operand + 4 > len(given):
                    raise ValueError(f"no word at {operand}")
                (accumulator,) = struct.unpack_from("<I", given, operand)
            case 0x54:  # A &= k
                accumulator &= operand
            case 0x15 | 0x25 | 0x35 | 0x45:  # ==, >, >=, &
                at += yes if _holds(code, accumulator, operand) else no
            case 0x05:  # jump
                at += operand
            case 0x06:  # return k
                return operand & _WORD
            case _:
                raise ValueError(f"unknown opcode {code:#x}")


def _holds(code: int, accumulator: int, operand: int) -> bool:
    return {
        0x15: accumulator == operand,
        0x25: accumulator > operand,
        0x35: accumulator >= operand,
        0x45: bool(accumulator & operand),
    }[code]
