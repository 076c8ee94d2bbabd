"""Request ids: unique within a process and, by their prefix, across restarts."""

from egress_proxy.proxy.parts import RequestIds


def test_ids_do_not_repeat() -> None:
    new_id = RequestIds()
    assert len({new_id() for _ in range(1_000)}) == 1_000


def test_another_process_has_other_ids() -> None:
    assert RequestIds()() != RequestIds()()
