"""Names that are obeyed: plain, relative, in lower case, each with a reason, in one list alone."""

import posixpath

from egress_proxy.sandbox.obeyed_names import NESTED_NAMES, PROTECTED_NAMES, REPORTED, WORKSPACE


def test_each_is_plain_and_says_who_obeys_it() -> None:
    for name, why in {**WORKSPACE, **REPORTED}.items():
        assert name == posixpath.normpath(name) == name.lower()
        assert not name.startswith(("/", ".."))
        assert why
    assert all("/" not in name for name in WORKSPACE)
    assert all(name.count("/") == 1 for name in NESTED_NAMES)


def test_what_is_protected_is_not_merely_reported() -> None:
    assert not set(PROTECTED_NAMES) & set(REPORTED)
