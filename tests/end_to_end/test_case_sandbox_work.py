"""Case C70: ordinary work under Landlock is done, each line for real, and what is outside is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import BACKENDS, RunGround

WORK = {
    "redirections": "echo x >/dev/null && head -c 3 </dev/zero >/dev/null && head -c 3 /dev/urandom >f",
    "a rename between folders": "mv a/f b/f && test -e b/f",
    "a link between folders": "ln a/f b/g && ln -s ../a/f b/h",
    "an atomic save": "python3 -c \"import os; open('t', 'w'); os.replace('t', 'b/t')\" && test -e b/t",
    "a truncation": ": >existing && test ! -s existing",
    "a pipe": "mkfifo p && { echo x >p & } && cat p",
    "a folder that is removed": "rm -r a && mkdir -p c/d && rmdir -p c/d",
    "modes": "chmod 600 existing && touch -d 2001-01-01 existing",
    "a temporary file": "t=$(mktemp) && echo x >$t && mv $t b/ ",
    "a commit": "git init -q . && git add a && git -c user.name=a -c user.email=a@b.c commit -q -m one",
    "processes": "python3 -c 'import subprocess as s; s.run([\"true\"], check=True, capture_output=True)'",
    "an in-place edit": "sed -i s/1/2/ existing && grep -q 2 existing",
    "an archive": "tar cf t.tar a && mkdir x && tar xf t.tar -C x && cmp a/f x/a/f",
}


@pytest.fixture
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        root = made.folder / "root"
        for name in ("a", "b"):
            (root / name).mkdir(parents=True)
        (root / "a" / "f").write_text("1\n")
        (root / "existing").write_text("1\n")
        (made.folder / "outside").write_text("kept\n")
        yield made


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("work", WORK)
def test_it_is_done(ground: RunGround, backend: str, work: str) -> None:
    flags = ("-q", "--backend", backend, "--rw", ".")
    ran = ground.run("sh", "-c", WORK[work], flags=flags, cwd=ground.folder / "root")
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "work",
    [
        "truncate -s 0 ../outside",
        "echo x >>../outside",
        "mv ../outside b/",
        "ln ../outside b/ && : >b/outside",
    ],
)
def test_outside_it_is_refused(ground: RunGround, backend: str, work: str) -> None:
    flags = ("-q", "--backend", backend, "--rw", ".")
    ran = ground.run("sh", "-c", work, flags=flags, cwd=ground.folder / "root")
    # Beside the root there may be a folder of the sandbox's own, in which bwrap has put the root.
    assert ran.code != 0 or backend == "bwrap"
    assert (ground.folder / "outside").read_text() == "kept\n"
