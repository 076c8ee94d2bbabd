"""What `run` says when the command has ended: hosts, files, names it planted, and how well it was confined.

Text only. Next: run.py (prints it), sandbox/denial.py (where it comes from).
"""

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from egress_proxy.core.attach import HostDenial, HostUse, Report
from egress_proxy.core.decision import Reason
from egress_proxy.sandbox.confinement import Confinement, Finished
from egress_proxy.sandbox.roots import is_in
from egress_proxy.sandbox.spec import Dimension, Gap

# A command chooses what it is refused: its names shall not push the rest of the summary off the screen.
_WIDTH, _HEAD, _ROWS, _HINT = 80, 26, 50, 200
_UNITS = ("B", "kB", "MB", "GB", "TB")
_STEP = 1000
_REMEDIES = {
    Reason.NOT_LISTED: "--allow",
    Reason.APPROVAL_DENIED: "--allow",
    Reason.APPROVAL_TIMEOUT: "--allow",
    Reason.ADDRESS_NOT_PUBLIC: "--allow-private",
}
_WEB_PORTS = frozenset({80, 443})
# What could have been done all the same, where a dimension is not full.
_OPEN_TO_IT: Mapping[Dimension, str] = {
    Dimension.WRITES: "files outside its folders",
    Dimension.METADATA: "modes, owners and times of files outside its folders",
    Dimension.EGRESS: "hosts that are not listed",
    Dimension.INBOUND: "taking connections from outside",
    Dimension.IPC: "sockets of other programs",
    Dimension.SIGNALS: "signals to other programs",
    Dimension.VISIBILITY: "a look at other programs",
    Dimension.LIMITS: "limits and priorities of other programs",
    Dimension.TMP: "temporary files of other programs",
    Dimension.LIFETIME: "going on after the command",
    Dimension.TERMINAL: "typing into the terminal",
    Dimension.SECRETS: "keys and tokens in files",
    Dimension.PROTECTED: "hooks and settings that git, editors and shells obey",
    Dimension.IDENTITY: "passing for another client of the proxy",
    Dimension.CONTROL: "the control API",
}
_Row = tuple[str, str, str, str]


def summary(
    finished: Finished,
    confinement: Confinement,
    roots: Iterable[str],
    *,
    watched_files: bool,
    may_be_root: Callable[[str], bool],
) -> Iterator[str]:
    """Lines for stderr. ``watched_files``: whether stderr was ours to read for refused files;
    ``may_be_root``: whether `--rw` would take a folder."""
    strength = f"confined by {confinement.backend}, enforcement {confinement.enforcement}"
    yield f"egress-proxy run: exit {finished.outcome.exit_code}, {strength}"
    if confinement.passed_over:
        yield f"  not the stronger sandbox: {confinement.passed_over}"
    yield from _table(_rows(finished, tuple(roots), may_be_root))
    report = finished.report or Report()
    if report.dropped:
        yield f"  and {report.dropped} destinations more"
    if finished.egress_lost:
        yield "  hosts are not known: the proxy was gone before the command had ended"
    if not finished.outcome.planted.complete:
        yield "  planted names are not known in full: a root has too many files"
    if not watched_files:
        yield "  refused files are not known: stderr is the terminal (pipe it to have them listed)"
    yield from _table(map(_gap, confinement.gaps))


def _rows(finished: Finished, roots: tuple[str, ...], may_be_root: Callable[[str], bool]) -> Iterator[_Row]:
    report = finished.report or Report()
    yield from map(_reached, report.reached)
    yield from map(_refused, report.denied)
    for path in finished.outcome.denied_writes:
        yield ("refused", path, "write", _remedy_for_file(path, roots, may_be_root))
    for path in finished.outcome.planted.paths:
        yield ("planted", path, "new or changed", "look at it before a tool obeys it")


def _reached(use: HostUse) -> _Row:
    moved = f"{_size(use.bytes_out)} out, {_size(use.bytes_in)} in"
    return ("reached", _target(use.host, use.port), f"{_counted(use.connections, 'connection')}, {moved}", "")


def _refused(denial: HostDenial) -> _Row:
    flag = _REMEDIES.get(Reason(denial.reason)) if denial.reason in set(Reason) else None
    target = _target(denial.host, denial.port)
    entry = target.rpartition(":")[0] if denial.port in _WEB_PORTS else target
    what = f"{_counted(denial.times, 'time')}, {denial.reason}"
    return ("refused", target, what, f"{flag} {entry}" if flag else "")


def _remedy_for_file(path: str, roots: tuple[str, ...], may_be_root: Callable[[str], bool]) -> str:
    if is_in(path, roots) or not os.path.isabs(path):
        return _why_protected(path)
    # Of what is in a git folder the whole repository is named: a root inside of one would be refused.
    folder = path.partition("/.git/")[0] if "/.git/" in path else os.path.dirname(path)
    if not may_be_root(folder):
        return ""  # the host's own, as a rule for good reason
    return f"--rw {shlex.quote(folder)}"


def _why_protected(path: str) -> str:
    if os.path.basename(path).startswith(".env") and os.path.basename(path) != ".envrc":
        return f"hidden: keys may lie there; --no-mask {shlex.quote(path)} shows it"
    if "/.git/" in f"{path}/":
        return "protected: git obeys it; change it outside"
    return "protected: git, an editor or a shell obeys it, or what lies in it"


def _gap(gap: Gap) -> _Row:
    return ("gap    ", gap.dimension, f"{gap.value}, {gap.reason}", f"not held: {_OPEN_TO_IT[gap.dimension]}")


def _target(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _size(count: int) -> str:
    """Three figures and a unit, as people say it."""
    size, unit = float(count), 0
    while size >= _STEP and unit < len(_UNITS) - 1:
        size, unit = size / _STEP, unit + 1
    return f"{count} B" if unit == 0 else f"{size:.3g} {_UNITS[unit]}"


def _table(rows: Iterable[_Row]) -> Iterator[str]:
    """Columns as wide as their widest cell, nothing after the last; of each kind the first rows."""
    listed, counts = [], Counter[str]()
    for row in rows:
        counts[row[0]] += 1
        if counts[row[0]] <= _ROWS:
            hint = row[3] if len(row[3]) <= _HINT else ""
            listed.append((row[0], _cut(row[1]), _cut(row[2]), hint))
    widths = [max((len(row[column]) for row in listed), default=0) for column in range(3)]
    for row in listed:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        yield f"  {'  '.join(cells)}  {row[3]}".rstrip()
    for kind, count in counts.items():
        if count > _ROWS:
            yield f"  {kind}  … and {count - _ROWS} more"


def _cut(cell: str) -> str:
    """The end of a path says most."""
    return cell if len(cell) <= _WIDTH else f"{cell[:_HEAD]}…{cell[_HEAD + 1 - _WIDTH :]}"
