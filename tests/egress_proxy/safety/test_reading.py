"""Room for commands."""

from egress_proxy.safety.reading import MAX_COMMANDS, MAX_INNER_TEXT, Limit, Reading
from egress_proxy.safety.values import MAX_EXPANDED, MAX_VISITS, Command


def test_long_commands_count_for_several() -> None:
    reading = Reading()
    assert reading.has_room_for(16 * (MAX_COMMANDS - 1))
    assert not reading.has_room_for(16)
    assert reading.is_full
    assert reading.limits == {Limit.MANY}


def test_nodes_are_counted() -> None:
    reading = Reading()
    assert all(reading.has_room() for _ in range(MAX_VISITS))
    assert not reading.has_room()
    assert reading.limits == {Limit.MANY}


def test_texts_that_grow_leave_no_room() -> None:
    reading = Reading()
    reading.memory.counted("x" * (MAX_EXPANDED + 1))
    assert reading.is_full


def test_a_command_is_kept_once() -> None:
    reading = Reading()
    reading.note(Command(()))
    reading.note(Command(()))
    assert len(reading.commands) == 1


def test_a_function_that_starts_itself_twice_is_the_fork_bomb() -> None:
    reading = Reading()
    reading.define("f", "{ f | f & }")
    reading.define("g", "{ f | g & }")
    assert [command.effects for command in reading.commands] == [("fork bomb",), ("defines",)]
    assert reading.functions.keys() == {"f", "g"}


def test_what_is_supposed_is_kept_apart() -> None:
    reading = Reading()
    reading.is_supposing = True
    reading.note(Command(()))
    assert not reading.commands
    assert list(reading.supposed) == [Command(())]


def test_programs_in_other_languages_cost_nodes() -> None:
    reading = Reading()
    assert reading.takes("a" * 1_000, "sh")
    assert reading.memory.visited == 0
    taken = [reading.takes("a" * 16, "node") for _ in range(MAX_VISITS)]
    assert 100 < sum(taken) < MAX_VISITS / 10
    assert not Reading().takes("a" * (MAX_INNER_TEXT + 1), "sh")
