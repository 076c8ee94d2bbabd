"""Room for commands."""

from egress_proxy.safety.reading import MAX_COMMANDS, Limit, Reading
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
