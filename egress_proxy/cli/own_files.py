"""Which files are the service's own: what no sandbox may read, and what none may write.

Names only, nothing is opened. Next: core/attach.py (tells them), sandbox/kept_files.py (keeps them).
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from egress_proxy.cli.plan import AuditPlan
from egress_proxy.core.attach import OwnFiles
from egress_proxy.sandbox.spec import Kept
from egress_proxy.settings.toml_file import choose_file
from egress_proxy.settings.tree import Settings
from egress_proxy.settings.variables import CONFIG_VARIABLE
from egress_proxy.vault.sources import SourceKind, SourceName


def settings_file(flag: str | None, environ: Mapping[str, str]) -> str | None:
    """The one in force, absolute as it was given; None where there is none."""
    chosen = choose_file(flag, environ)
    return None if chosen is None else os.path.abspath(chosen.path)


def own_files(settings: Settings, secrets: Iterable[SourceName], file: str | None) -> OwnFiles:
    """Absolute, so that they stay the same wherever the process goes."""
    kept = (file, file and os.path.dirname(file), settings.audit.path, settings.record_requests)
    return OwnFiles(
        tuple(sorted({name.rest for name in secrets if name.kind is SourceKind.FILE})),
        tuple(os.path.abspath(path) for path in kept if path),
    )


def kept_in_run(
    own: OwnFiles, flag: str | None, environ: Mapping[str, str], audit: AuditPlan | None, record: Path | None
) -> Iterator[Kept]:
    """The same for people: each with what named it."""
    file = settings_file(flag, environ)
    if file is not None:
        variable = f"${CONFIG_VARIABLE}" if environ.get(CONFIG_VARIABLE) else "the default one"
        named_by = "--config" if flag else variable
        yield Kept(file, f"the settings file ({named_by})")
        # What the file names by a relative path lies there, and so would the file that takes its place.
        yield Kept(os.path.dirname(file), f"the folder of the settings file ({named_by})")
    if audit:
        yield Kept(str(audit.path), "the audit log (--audit)")
    if record:
        yield Kept(str(record), "the recording (--record-requests)")
    for path in own.secret:
        yield Kept(path, "the secret file")
