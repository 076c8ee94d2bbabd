"""Classic BPF, assembled: lines with labels in, the bytes of `struct sock_filter` out (<linux/filter.h>).

Knows no system call and no policy. Jumps only go forward, and a jump that does not fit is an error, never
a wrong target. Next: seccomp.py (writes the lines).
"""

import enum
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WORD = 0xFFFF_FFFF
MAX_INSTRUCTIONS = 4096
"""BPF_MAXINSNS: the kernel takes no longer program."""
_FARTHEST = 255  # jump distances are one byte
_INSTRUCTION = struct.Struct("=HBBI")  # code, jump if true, jump if false, operand
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06  # LD|W|ABS, ALU|AND|K, RET|K


class AssemblyError(ValueError):
    """The lines make no program: a label unknown or repeated, a jump backwards or too far, too many."""


class Comparison(enum.IntEnum):
    """What a branch asks of the loaded word; the values are the opcodes, JMP|…|K."""

    EQUALS = 0x15
    AT_LEAST = 0x35
    HAS_ANY_BIT = 0x45


@dataclass(frozen=True, slots=True)
class Load:
    """Load the 32-bit word at this byte of the input."""

    offset: int


@dataclass(frozen=True, slots=True)
class And:
    """Keep these bits of the loaded word."""

    bits: int


@dataclass(frozen=True, slots=True)
class Branch:
    """Go to a label if the comparison holds and to another if not; None: on to the next line."""

    comparison: Comparison
    value: int
    yes: str | None = None
    no: str | None = None


@dataclass(frozen=True, slots=True)
class Return:
    """End with this value."""

    value: int


@dataclass(frozen=True, slots=True)
class Label:
    """A name for the next instruction. Takes no room."""

    name: str


Instruction = Load | And | Branch | Return
Line = Instruction | Label


def assemble(lines: Iterable[Line]) -> bytes:
    """Raises AssemblyError."""
    instructions, positions = _placed(tuple(lines))
    if len(instructions) > MAX_INSTRUCTIONS:
        raise AssemblyError(f"{len(instructions)} instructions, {MAX_INSTRUCTIONS} is the kernel's limit")
    return b"".join(_encoded(line, at, positions) for at, line in enumerate(instructions))


def _placed(lines: Sequence[Line]) -> tuple[list[Instruction], dict[str, int]]:
    instructions: list[Instruction] = []
    positions: dict[str, int] = {}
    for line in lines:
        if not isinstance(line, Label):
            instructions.append(line)
        elif line.name in positions:
            raise AssemblyError(f"label {line.name!r} stands twice")
        else:
            positions[line.name] = len(instructions)
    return instructions, positions


def _encoded(line: Instruction, at: int, positions: Mapping[str, int]) -> bytes:
    match line:
        case Load(offset):
            return _INSTRUCTION.pack(_LOAD, 0, 0, offset)
        case And(bits):
            return _INSTRUCTION.pack(_AND, 0, 0, bits & WORD)
        case Return(value):
            return _INSTRUCTION.pack(_RETURN, 0, 0, value & WORD)
        case Branch(comparison, value, yes, no):
            distances = (_distance(label, at, positions) for label in (yes, no))
            return _INSTRUCTION.pack(comparison, *distances, value & WORD)


def _distance(label: str | None, at: int, positions: Mapping[str, int]) -> int:
    if label is None:
        return 0
    if label not in positions:
        raise AssemblyError(f"label {label!r} is nowhere")
    distance = positions[label] - at - 1
    if not 0 <= distance <= _FARTHEST:
        raise AssemblyError(
            f"label {label!r} is {distance} instructions away, 0 to {_FARTHEST} can be jumped"
        )
    return distance
