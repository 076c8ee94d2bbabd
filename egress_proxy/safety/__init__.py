"""Is this shell command dangerous? A hint for approvals, and not a boundary: the sandbox is that.

Promise: text in, a grade with its reasons out; nothing is run. Imports core at most, no aiohttp.
Its published names: classify.py (the grade), registry.py and pattern.py (rules of a host's own).
"""

__all__ = ("CommandSafetyPattern", "classify_shell_command", "register_rule", "unregister_rule")


def __getattr__(name: str):  # type: ignore[no-untyped-def]  # a type checker takes each name for anything
    """Hosts import these names from here; the grammar of shells is not loaded before one is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from egress_proxy.safety import classify, pattern, registry

    return next(getattr(part, name) for part in (pattern, registry, classify) if hasattr(part, name))
