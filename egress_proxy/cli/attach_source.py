"""Where sandboxes attach: --attach, else the user's run-time or state folder, else nowhere.

Next: core/attach.py (the default path), proxy/attach_socket.py (opens it), planning.py (who asks).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from egress_proxy.cli.plan import AttachPlan
from egress_proxy.core.attach_place import default_path
from egress_proxy.settings.load import Loaded
from egress_proxy.settings.scalars import UNIX_PATH_LIMIT_BYTES

_NOWHERE = "sandboxes cannot attach: {}; name a path with --attach PATH, or '' for none"


@dataclass(frozen=True, slots=True)
class AttachPlace:
    """``warnings``: why there is none though nobody said so."""

    plan: AttachPlan | None
    warnings: tuple[str, ...] = ()


def attach_of(loaded: Loaded, environ: Mapping[str, str]) -> AttachPlace:
    """Raises SettingsError for a path that somebody named and no socket can have."""
    named = loaded.settings.attach
    if named == "":
        return AttachPlace(None)
    if named is not None:
        path = Path(named).absolute()
        if not _fits(path):
            raise loaded.error(
                ("attach",), f"is longer than the {UNIX_PATH_LIMIT_BYTES} bytes of a socket's path"
            )
        return AttachPlace(AttachPlan(path, is_named=True))
    default = default_path(environ)
    if default is not None:
        return AttachPlace(AttachPlan(Path(default), is_named=False))
    if not any(environ.get(name) for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME")):
        why = "neither $XDG_RUNTIME_DIR nor $HOME names a folder"
        return AttachPlace(None, (_NOWHERE.format(why),))
    # Not by default_path: whoever looks for it finds it by EGRESS_ATTACH alone, since anybody may have made a
    # folder of that name. The socket is opened only in one that is ours and that nobody else can write.
    short = Path(f"/tmp/egress-proxy-{os.geteuid()}/attach.sock")  # noqa: S108
    return AttachPlace(AttachPlan(short, is_named=False))


def _fits(path: Path) -> bool:
    return len(str(path).encode("utf-8", "surrogateescape")) <= UNIX_PATH_LIMIT_BYTES
