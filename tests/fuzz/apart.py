"""Calls a function in a child, because a parser in C can end the interpreter that runs it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, TypeVar

from tests.fuzz.targets import Broken

P = ParamSpec("P")
R = TypeVar("R")


class Apart:
    """``with Apart() as apart: apart(judged, "ls")``; a call that ends the child raises Broken."""

    def __enter__(self) -> Apart:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def __call__(self, function: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        try:
            return self._pool.submit(function, *args, **options).result()
        except BrokenProcessPool:
            self._start()
            raise Broken(f"the interpreter ends in {function.__name__} of {args!r}") from None

    def _start(self) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        self._pool.submit(abs, 1).result()  # its threads start now, not in the first test
