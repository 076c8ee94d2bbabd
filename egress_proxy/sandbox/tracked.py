"""Whether a file's content is in the repository that it lies in, where everybody who has that can read it.

Reads a git index and runs no git, which would obey the repository's settings. Not by name: a command can put
any name into the index, but not the hash of a content that it has not read. Next: masks.py (asks).
"""

import contextlib
import hashlib
import mmap
import os
import stat

from egress_proxy.sandbox.protected import small_file

_CONTENT_LIMIT = 1 << 20  # bytes of a file of variables; a larger one is masked
_INDEX_LIMIT = 512 << 20
_POINTER_LIMIT = 4096  # bytes of a `.git` file: one path


def is_tracked(path: str) -> bool:
    """``path`` is absolute. Anything that cannot be read says no."""
    content = small_file(path, _CONTENT_LIMIT + 1)
    if content is None or len(content) > _CONTENT_LIMIT:
        return False
    hashes = _blob_hashes(content)
    return any(_holds(index, hashes) for index in _indexes(os.path.dirname(path)))


def _blob_hashes(content: bytes) -> tuple[bytes, ...]:
    """As git names a file: by SHA-1 or SHA-256, with line ends as they are or as it may store them."""
    texts = {content, content.replace(b"\r\n", b"\n")}
    return tuple(
        make(b"blob %d\0" % len(text) + text).digest() for text in texts for make in (_sha1, hashlib.sha256)
    )


def _sha1(text: bytes) -> "hashlib._Hash":
    return hashlib.sha1(text, usedforsecurity=False)


def _indexes(folder: str) -> tuple[str, ...]:
    """Of the innermost repository around a folder: its index, and the one that a split index shares."""
    while True:
        git = os.path.join(folder, ".git")
        if os.path.lexists(git):
            git = _git_folder(git)
            break
        if folder == "/":
            return ()
        folder = os.path.dirname(folder)
    with contextlib.suppress(OSError):
        shared = [name for name in os.listdir(git) if name.startswith("sharedindex.")]
        return tuple(os.path.join(git, name) for name in ("index", *shared))
    return ()


def _git_folder(git: str) -> str:
    pointer = small_file(git, _POINTER_LIMIT)
    if pointer is None or not pointer.startswith(b"gitdir: "):
        return git
    return os.path.join(os.path.dirname(git), os.fsdecode(pointer[8:].rstrip(b"\r\n")))


def _holds(index: str, hashes: tuple[bytes, ...]) -> bool:
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(index, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= _INDEX_LIMIT:
                return False
            with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
                return any(content.find(one) >= 0 for one in hashes)
        finally:
            os.close(descriptor)
    return False
