"""Room for commands."""

from egress_proxy.safety.reading import MAX_COMMANDS, Limit, Reading
from egress_proxy.safety.values import Command


def test_long_commands_count_for_several() -> None:
    reading = Reading()
    assert reading.has_room_for(32 * (MAX_COMMANDS - 1))
    assert not reading.has_room_for(32)
    assert reading.is_full
    assert reading.limits == {Limit.MANY}


def test_a_command_is_kept_once() -> None:
    reading = Reading()
    reading.note(Command(()))
    reading.note(Command(()))
    assert len(reading.commands) == 1
