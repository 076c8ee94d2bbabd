"""A plan and a recipe come out of their bytes as they went in, whatever the paths are called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.sandbox import outer
from egress_proxy.sandbox.plan import LaunchPlan, Recipe, encode

PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize("entry", [("path", "/a\0cwd=/"), ("a=b", "c")])
def test_a_value_cannot_begin_another_entry(entry: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="holds a NUL"):
        encode([entry])
    with pytest.raises(ValueError, match="holds a NUL"):
        LaunchPlan(cwd="/a\0session=new").encode()


NAMES = st.sampled_from(["A", "PATH", "http_proxy"])


@given(st.lists(PATHS), st.lists(PATHS), st.binary(), st.binary(), st.dictionaries(NAMES, PATHS))
def test_outer_reads_what_the_recipe_says(
    words: list[str], args: list[str], launch: bytes, program: bytes, variables: dict[str, str]
) -> None:
    recipe = Recipe("bwrap", tuple(words), tuple(args), launch, program, attach="/run/a.sock", answer_ms=7)
    line = recipe.on_command_line(["LANG", "LC_*"], variables, b"hello\n", b"welcome")
    read = outer.Instructions(bytes.fromhex("".join(line)))
    assert [word.decode() for word in read.words] == words
    assert [word.decode() for word in read.args] == args
    assert read.contents == {b"@launch": launch, b"@filter": program}
    assert read.variables == {name.encode(): value.encode() for name, value in variables.items()}
    assert read.kept == [b"LANG", b"LC_*"]
    assert (read.attach, read.answer_ms) == (b"/run/a.sock", 7)
    assert (read.hello, read.welcome) == (b"hello\n", b"welcome")


def test_no_word_of_a_command_line_is_longer_than_linux_takes() -> None:
    line = Recipe("bwrap", ("/x",), launch=b"x" * 500_000).on_command_line((), {})
    assert len(line) > 1
    assert max(map(len, line)) < 128 * 1024
