"""A plan and a recipe come out of their bytes as they went in, whatever the paths are called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.sandbox import launcher, outer
from egress_proxy.sandbox.plan import LandlockRules, LaunchPlan, PathRule, PortRule, Recipe, encode

PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
NUMBERS = st.integers(0, 2**64 - 1)
PORTS = st.integers(0, 65535)


def rules() -> st.SearchStrategy[LandlockRules]:
    paths = st.builds(PathRule, NUMBERS, PATHS, st.booleans())
    ports = st.builds(PortRule, NUMBERS, PORTS)
    return st.builds(
        LandlockRules,
        st.sampled_from([8, 16, 24]),
        *[NUMBERS] * 3,
        st.lists(paths).map(tuple),
        st.lists(ports).map(tuple),
    )


PLANS = st.builds(
    LaunchPlan,
    port=st.none() | PORTS,
    landlock=st.none() | rules(),
    program=st.binary(),
    cwd=st.none() | PATHS,
    new_session=st.booleans(),
    answer_ms=st.integers(0, 10**6),
    private_tmp=st.none() | PATHS,
)


@given(PLANS)
def test_the_launcher_reads_what_was_planned(plan: LaunchPlan) -> None:
    read = launcher.Plan(plan.encode())
    assert (read.port, read.program, read.new_session) == (plan.port, plan.program, plan.new_session)
    assert read.answer_ms == (0 if plan.port is None else plan.answer_ms)
    assert read.cwd == (None if plan.cwd is None else plan.cwd.encode())
    assert read.private_tmp == (None if plan.private_tmp is None else plan.private_tmp.encode())
    if plan.landlock is None:
        assert (read.ruleset, read.paths, read.ports) == ([], [], [])
        return
    asked = plan.landlock
    assert read.ruleset == [asked.attribute_bytes, asked.handled_fs, asked.handled_net, asked.scoped]
    assert read.paths == [(rule.access, rule.path.encode(), rule.required) for rule in asked.paths]
    assert read.ports == [(rule.access, rule.port) for rule in asked.ports]


@given(PLANS, st.data())
def test_a_plan_that_is_cut_short_is_never_read(plan: LaunchPlan, data: st.DataObject) -> None:
    """A lost tail may be the filter."""
    encoded = plan.encode()
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(ValueError, match="cut short"):
        launcher.Plan(cut)


def test_names_that_are_no_text_are_passed_on_as_they_are() -> None:
    assert launcher.Plan(LaunchPlan(cwd="/\udcff").encode()).cwd == b"/\xff"


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
