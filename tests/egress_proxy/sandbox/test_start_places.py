"""The folders that programs start from: each is a plain path below a home, with a reason."""

import posixpath

from egress_proxy.sandbox.obeyed_names import WORKSPACE_NAMES
from egress_proxy.sandbox.start_places import START_PLACES


def test_each_is_a_path_below_a_home_and_says_why() -> None:
    for name, why in START_PLACES.items():
        assert name == posixpath.normpath(name)
        assert not name.startswith(("/", "..", "~"))
        assert why
        assert name not in WORKSPACE_NAMES, "it is refused by its name already"
