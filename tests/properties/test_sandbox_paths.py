"""Paths of a sandbox: no text makes a root of what is guarded, and no output makes a denial of what was none.

Tables of cases are in ../egress_proxy/sandbox/test_roots.py, test_denial.py and test_stderr_paths.py.
"""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.sandbox.denial import BWRAP, LANDLOCK, SEATBELT, STDERR_LIMIT, Ended, outcome
from egress_proxy.sandbox.roots import RootRefused, canonical_roots, is_below
from egress_proxy.sandbox.stderr_paths import Bounds

NAMES = ("work", "deep", "link", "up", "guarded", "inner", "file", "loop", "a b", "missing")
PIECES = (*NAMES, ".", "..", "", "\n", "\0", "-x")
relative = st.lists(st.sampled_from(PIECES), max_size=8).map("/".join)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders, links across them, and one folder that no root may be, hold or lie in."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in ("work/deep/a b", "guarded/inner", "work/inner"):
        (tree / folder).mkdir(parents=True)
    (tree / "file").touch()
    links = {
        "link": "work/deep",
        "work/link": "../guarded",
        "work/up": "..",
        "work/deep/link": "/",
        "loop": "loop",
    }
    for name, target in links.items():
        (tree / name).symlink_to(target)
    return tree


def opened(path: str) -> str:
    """The kernel's own answer to which folder a path is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


@given(texts=st.lists(relative, min_size=1, max_size=4))
def test_an_accepted_root_is_the_folder_that_the_kernel_finds_and_guarded_is_out_of_reach(
    tree: Path, texts: list[str]
) -> None:
    guarded = f"{tree}/guarded"
    asked = [f"{tree}/{text}" for text in texts]
    try:
        roots = canonical_roots(asked, protected_trees=[guarded])
    except RootRefused:
        return
    found = {opened(path) for path in asked}
    assert set(roots) <= found
    for path in found:
        assert any(path == root or is_below(path, root) for root in roots)
        assert path != guarded
        assert not is_below(guarded, path)
        assert not is_below(path, guarded)
    assert not any(is_below(root, other) for root in roots for other in roots)


@given(text=st.text())
def test_any_text_is_a_folder_or_refused(text: str) -> None:
    try:
        roots = canonical_roots([text])
    except RootRefused:
        return
    assert all(os.path.isdir(root) and os.path.realpath(root) == root for root in roots)


WORDS = (
    "Read-only file system", "Permission denied", "Operation not permitted", "Device or resource busy",
    "touch: ",    ": ", "'", '"', "`", "(", ")", "/", "..", "/w", "/w/", "/opt/x", "x", " ", "\n", "bwrap: ",
    "sandbox-exec: ", "execvp ", "\0", "\x85", "//",
)  # fmt: skip
stderr_texts = st.lists(st.sampled_from(WORDS) | st.text(max_size=5), max_size=30).map("".join)
BACKENDS = st.sampled_from((BWRAP, LANDLOCK, SEATBELT))


@given(text=stderr_texts, backend=BACKENDS, code=st.integers(-64, 255))
def test_no_output_denies_a_path_in_a_root_or_after_success_or_a_signal(
    text: str, backend: str, code: int
) -> None:
    judged = outcome(Ended(code, text.encode("utf-8", "replace")), backend, Bounds(("/w",), "/w"))
    assert not any(path == "/w" or is_below(path, "/w") for path in judged.denied_writes)
    assert all(path.startswith("/") and os.path.normpath(path) == path for path in judged.denied_writes)
    if code <= 0 or judged.signal is not None:
        assert judged.denied_writes == ()
    if backend != SEATBELT:
        assert judged.runner_failure is None


@given(
    status=stderr_texts | st.sampled_from(['{"exit-code": 1}', "{", "[[", "1" * 5000]),
    code=st.integers(0, 255),
)
def test_a_status_stream_without_an_exit_code_is_never_a_run(status: str, code: int) -> None:
    judged = outcome(Ended(code, b"", status), BWRAP, Bounds(("/w",), "/w"))
    assert (judged.runner_failure is None) == ("exit-code" in status)


@pytest.mark.parametrize("piece", ["'", '"', "`", "/", ": ", "a: /", "'/", "(", "\u2018", "/../", "x'x "])
def test_no_output_takes_long_to_read(piece: str) -> None:
    """The test's own time limit is the bound: quadratic reading of 64 KiB takes minutes."""
    text = piece * (STDERR_LIMIT // len(piece.encode())) + "Read-only file system"
    outcome(Ended(1, text.encode()[-STDERR_LIMIT:]), BWRAP, Bounds(("/w",), "/w"))
