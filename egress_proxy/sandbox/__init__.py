"""Client library: make the proxy a process's only way out. Says which part of a promise holds, and which not.

Imports core alone, and no web framework; never decides what may be reached. Start at spec.py (the policy),
choose.py (the rungs) and backends.py (what executors use; its names are this package's too).
"""

__all__ = (
    "BwrapExecBackend",
    "LandlockExecBackend",
    "SandboxBackend",
    "SandboxUnavailable",
    "SeatbeltExecBackend",
    "build_seatbelt_profile",
    "bwrap_path",
    "landlock_available",
    "select_exec_backend",
)


def __getattr__(name: str):  # type: ignore[no-untyped-def]  # a type checker takes each name for anything
    """Hosts import these names from here; no part is loaded before one of them is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from egress_proxy.sandbox import backends, seatbelt, spec

    return next(getattr(part, name) for part in (backends, seatbelt, spec) if hasattr(part, name))
