"""A fault as an event: what and where, and nothing of what was in it."""

from egress_proxy.proxy.faults import fault_event


def test_type_and_place_are_told_and_the_text_is_not() -> None:
    try:
        raise ValueError("Bearer sk-canary")
    except ValueError as error:
        event = fault_event("r-1", error)
    assert (event.request_id, event.error) == ("r-1", "ValueError")
    assert event.where.startswith("test_faults.py:")
    assert "canary" not in repr(event)


def test_an_exception_that_was_never_raised_has_no_place() -> None:
    assert fault_event("r-1", RuntimeError()).where == ""
