"""Where the attach socket lies unless it is said: the user's own folders, in their order."""

import pytest

from egress_proxy.core.attach_place import default_path


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/h"}, "/run/user/7/egress-proxy/attach.sock"),
        ({"XDG_RUNTIME_DIR": "run", "XDG_STATE_HOME": "/s/"}, "/s/egress-proxy/attach.sock"),
        ({"XDG_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/egress-proxy/attach.sock"),
        ({"HOME": "h"}, None),
        ({"HOME": ""}, None),
        ({}, None),
    ],
)
def test_the_default_path_is_the_users_own_and_absolute(environ: dict[str, str], path: str | None) -> None:
    assert default_path(environ) == path
