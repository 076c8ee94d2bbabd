"""Tokens of programs in many languages."""

import pytest

from egress_proxy.safety.foreign_tokens import MAX_TOKENS, Kind, tokens_of


@pytest.mark.parametrize(
    ("language", "code", "kind", "text"),
    [
        ("python", "'a b'", Kind.STRING, "a b"),
        ("python", 'r"a"', Kind.STRING, "a"),
        ("python", '"a\\x41\\""', Kind.STRING, 'aA"'),
        ("python", "'open", Kind.STRING, "open"),
        ("python", "os.system", Kind.NAME, "os.system"),
        ("perl", "`a`", Kind.SHELL, "a"),
        ("perl", "qx(a)", Kind.SHELL, "a"),
        ("perl", "qw(a b)", Kind.LIST, "a b"),
        ("perl", "q{a}", Kind.STRING, "a"),
        ("perl", "</*>", Kind.STRING, "/*"),
        ("ruby", "%x(a)", Kind.SHELL, "a"),
        ("node", "`a`", Kind.STRING, "a"),
    ],
)
def test_one_token(language: str, code: str, kind: Kind, text: str) -> None:
    token = tokens_of(code, language)[0]
    assert (token.kind, token.text) == (kind, text)


def test_a_long_string_has_three_quotes() -> None:
    assert [token.text for token in tokens_of('"""a"b"""', "python")] == ['a"b']


def test_the_last_part_of_a_name() -> None:
    assert [token.last for token in tokens_of("a.b c::d e->f $g", "perl")] == ["b", "d", "f", "g"]


def test_tokens_are_limited() -> None:
    assert len(tokens_of("a " * 2 * MAX_TOKENS, "python")) == MAX_TOKENS
