"""The summary of a run: a row for each host and file with the flag that helps, and what was not held."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from egress_proxy.cli import sandbox_policy
from egress_proxy.cli.run_summary import summary
from egress_proxy.core.attach import HostDenial, HostUse, Report
from egress_proxy.sandbox.confinement import Confinement, Finished
from egress_proxy.sandbox.denial import Outcome
from egress_proxy.sandbox.planted import Planted
from egress_proxy.sandbox.spec import Dimension, Enforcement, Gap

QUIET = Outcome(0)


def lines(
    outcome: Outcome = QUIET,
    report: Report | None = None,
    *,
    gaps: tuple[Gap, ...] = (),
    roots: tuple[str, ...] = (),
    egress_lost: bool = False,
    watched_files: bool = True,
) -> list[str]:
    confinement = cast(
        Confinement, SimpleNamespace(backend="bwrap", gaps=gaps, enforcement=Enforcement.FULL, passed_over="")
    )
    finished = Finished(outcome, report, egress_lost)
    return list(
        summary(
            finished,
            confinement,
            roots,
            watched_files=watched_files,
            may_be_root=lambda folder: sandbox_policy.may_be_root(folder, {}),
        )
    )


def test_nothing_happened_is_one_line() -> None:
    assert lines() == ["egress-proxy run: exit 0, confined by bwrap, enforcement full"]
    assert lines(Outcome(137))[0].startswith("egress-proxy run: exit 137,")


def test_hosts_stand_in_columns() -> None:
    report = Report(
        (HostUse("a.example", 443, 1, 999, 1_000), HostUse("2001:db8::1", 8443, 12, 1_234_567, 5 * 10**12)),
        (
            HostDenial("evil.example", 443, 2, "not_listed"),
            HostDenial("in.example", 81, 1, "address_not_public"),
        ),
    )
    assert lines(report=report)[1:] == [
        "  reached  a.example:443       1 connection, 999 B out, 1 kB in",
        "  reached  [2001:db8::1]:8443  12 connections, 1.23 MB out, 5 TB in",
        "  refused  evil.example:443    2 times, not_listed                   --allow evil.example",
        "  refused  in.example:81       1 time, address_not_public            --allow-private in.example:81",
    ]


@pytest.mark.parametrize("reason", ["listed_as_denied", "no such reason"])
def test_what_no_flag_would_allow_has_none(reason: str) -> None:
    report = Report(denied=(HostDenial("evil.example", 443, 1, reason),))
    assert lines(report=report)[1:] == [f"  refused  evil.example:443  1 time, {reason}"]


def test_refused_files_come_with_the_folder_to_add_unless_it_would_be_refused_or_they_are_protected(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    paths = (str(folder / "x"), "/srv/project/.git/hooks/pre-commit", "/etc/motd", "/nowhere/x")
    shown = lines(Outcome(1, denied_writes=paths), roots=("/srv/project",))[1:]
    assert [line.partition(" write")[2].strip() for line in shown] == [
        f"--rw {shlex.quote(str(folder))}",
        "protected: git obeys it; change it outside",
        "",
        "",
    ]


def test_planted_names_are_shown() -> None:
    [line] = lines(Outcome(0, planted=Planted(("/srv/project/.envrc",))))[1:]
    assert line.split()[:2] == ["planted", "/srv/project/.envrc"]


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (lines(report=Report(dropped=3)), "and 3 destinations more"),
        (lines(egress_lost=True), "hosts are not known"),
        (lines(Outcome(0, planted=Planted(complete=False))), "planted names are not known in full"),
        (lines(watched_files=False), "refused files are not known"),
    ],
)
def test_what_is_not_known_is_said(shown: list[str], words: str) -> None:
    assert [line for line in shown[1:] if words in line]


@pytest.mark.parametrize("dimension", list(Dimension))
def test_every_gap_says_what_was_not_held(dimension: Dimension) -> None:
    [line] = lines(gaps=(Gap(dimension, Enforcement.PARTIAL, "landlock:x"),))[1:]
    kind, named, *rest = line.split()
    assert (kind, named) == ("gap", dimension)
    assert " ".join(rest).startswith("partial, landlock:x not held: ")


def test_long_names_and_many_rows_give_a_short_summary() -> None:
    long, many = "/srv/" + "x" * 4000, tuple(f"/srv/{'y' * 240}{n}" for n in range(5000))
    shown = lines(
        Outcome(1, denied_writes=(long, *many), planted=Planted((long, "/srv/.envrc"))), roots=("/srv",)
    )
    assert len(shown) <= 60
    assert max(map(len, shown)) < 400
    assert "  refused  … and 4951 more" in shown
    assert any(line.split()[:2] == ["planted", "/srv/.envrc"] for line in shown)


def test_a_long_path_keeps_its_end() -> None:
    [line] = lines(Outcome(1, denied_writes=("/srv/" + "x" * 200 + "/name",)), roots=("/srv",))[1:]
    assert line.split()[1].startswith("/srv/xx")
    assert line.split()[1].endswith("/name")
    assert len(line.split()[1]) == 80
