"""Where a proxy has its attach socket unless it is told otherwise: by the user's environment alone.

Pure: makes nothing, looks nowhere. Next: attach.py (what is said there), cli/attach_source.py (opens it).
"""

from collections.abc import Mapping

SOCKET_PATH_LIMIT_BYTES = 103
"""Of a unix socket's path: sun_path less its end, on a Mac, which has the least."""


def default_path(environ: Mapping[str, str]) -> str | None:
    """Where a proxy has its attach socket unless it is told otherwise; None where there is no such place.

    The first whose path a socket can have. The XDG specification: a relative path in one of its variables is
    to be ignored.
    """
    home = environ.get("HOME", "")
    for folder in (
        environ.get("XDG_RUNTIME_DIR", ""),
        environ.get("XDG_STATE_HOME", ""),
        f"{home}/.local/state" if home else "",
    ):
        path = f"{folder.rstrip('/')}/egress-proxy/attach.sock"
        if folder.startswith("/") and len(path.encode("utf-8", "surrogateescape")) <= SOCKET_PATH_LIMIT_BYTES:
            return path
    return None
