"""Lent pipes: bounded in number, empty when they come back into use, and closed at the end."""

import fcntl
import os

import pytest

from egress_proxy.proxy import pipes as pipes_module
from egress_proxy.proxy.pipes import Pipe, PipePool
from tests.support.proc_figures import open_descriptors


@pytest.fixture
def descriptors() -> int:
    return open_descriptors(os.getpid())


def test_a_pipe_comes_back_into_use(descriptors: int) -> None:
    pool = PipePool()
    first = pool.lend()
    assert first is not None
    pool.take_back(first)
    assert pool.lend() is first
    pool.take_back(first)
    pool.close()
    assert open_descriptors(os.getpid()) == descriptors


def test_a_pipe_with_bytes_in_it_is_never_lent_again(descriptors: int) -> None:
    pool = PipePool()
    broken = pool.lend()
    assert broken is not None
    broken.held = os.write(broken.writer, b"of another tunnel")
    pool.take_back(broken)
    fresh = pool.lend()
    assert fresh is not None
    with pytest.raises(BlockingIOError):
        os.read(fresh.reader, 1)
    pool.take_back(fresh)
    pool.close()
    assert open_descriptors(os.getpid()) == descriptors


def test_no_more_are_lent_than_the_limit_says() -> None:
    pool = PipePool(limit=2)
    lent = [pool.lend(), pool.lend()]
    assert pool.lend() is None
    for pipe in lent:
        assert pipe is not None
        pool.take_back(pipe)
    assert pool.lend() in lent
    pool.close()


def test_without_descriptors_there_is_no_pipe_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> Pipe:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(pipes_module, "Pipe", full)
    assert PipePool().lend() is None


def test_all_pipes_together_leave_most_of_an_ordinary_users_pipe_memory_to_others() -> None:
    granted_pages = 16_384  # pipe-user-pages-soft, as Linux comes
    pipe = Pipe()
    try:
        pages = fcntl.fcntl(pipe.writer, fcntl.F_GETPIPE_SZ) // os.sysconf("SC_PAGE_SIZE")
    finally:
        pipe.close()
    assert pages * pipes_module.PIPES <= granted_pages // 4


def test_reading_an_empty_pipe_does_not_wait() -> None:
    pipe = Pipe()
    try:
        with pytest.raises(BlockingIOError):
            os.read(pipe.reader, 1)
    finally:
        pipe.close()


@pytest.mark.parametrize(("descriptors", "pipes"), [(160, 5), (512, 16), (65_536, 16)])
def test_where_descriptors_are_few_so_are_pipes(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, pipes: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (descriptors, descriptors))
    assert pipes_module.pipe_limit() == pipes
