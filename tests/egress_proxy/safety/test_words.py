"""Words after quotes, expansions and substitutions."""

import pytest

from egress_proxy.safety.shell import read_line
from egress_proxy.safety.values import UNKNOWN, Origin


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("'a b' \"c d\" e\\ f", ["a b", "c d", "e f"]),
        ("a'b'\"c\"d", ["abcd"]),
        ("$'\\x41\\n'", ["A\n"]),
        ('$HOME "$HOME"/x ~', ["~", "~/x", "~"]),
        ("'~'", ["./~"]),
        ("$x", [UNKNOWN]),
        ("''", [""]),
        ("''\"\"", [""]),
        ("$none'' x", [UNKNOWN, "x"]),
        ("a${IFS}b${IFS}\\/", ["a", "b", "/"]),
        ("a`echo b`c", ["abc"]),
        ("${x:-d} ${x-e}", ["d", "e"]),
        ('"$v $v" $v', ["a b a b", "a", "b"]),
        ("${v/a/c} ${v:0:1}", ["c", "b", "a"]),
        ("$(echo hi) `printf x`", ["hi", "x"]),
        ("${HOME:0:1}", ["/"]),
        ("${HOME%/}/ ${w#v}x", ["~/", "x"]),
        ("${w%?}", [UNKNOWN]),
        ("{a,b}c '{a,b}'", ["ac", "bc", "{a,b}"]),
        ("$((1+1))", [UNKNOWN]),
        ("${!w}", ["a", "b"]),
        ("é", ["é"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    found = list(read_line(f"v='a b'; w=v; cmd {text}").commands)[-1]
    assert [word.text for word in found.words[1:]] == words


def test_a_word_remembers_where_it_comes_from() -> None:
    found = list(read_line("cmd $(curl U)").commands)[-1]
    assert Origin.DOWNLOAD in found.words[1].origin
