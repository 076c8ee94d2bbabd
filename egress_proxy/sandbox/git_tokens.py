"""Tokens in git's own settings: in the address of a remote, as check-outs of CI write them, or in a header.

Reads files and runs no git. They are not hidden, since git needs the rest: that they can be read is said as a
gap. Next: masks.py (says it).
"""

import os
import re
from collections.abc import Iterable, Iterator

from egress_proxy.sandbox.protected import small_file
from egress_proxy.sandbox.real_path import real_path

_READ_LIMIT = 256 * 1024  # bytes
_TOKEN = re.compile(
    rb"://[^/\s@:]*:[^/\s@]+@"  # user:password@host
    rb"|://(?:[\w-]{20,}|x-access-token)@"  # a token as the user
    rb"|extraheader\s*=\s*\S*authorization"
    rb"|^\s*(?:password|passwd|\w*token|oauth\w*secret|smtppass)\s*=\s*\S",
    re.IGNORECASE | re.MULTILINE,
)


def token_in(config: str) -> bool:
    content = small_file(real_path(config), _READ_LIMIT)
    return content is not None and _TOKEN.search(content) is not None


def user_configs(homes: Iterable[str], cwd: str | None) -> Iterator[str]:
    """Of the user, and of the repository around the working folder."""
    for home in homes:
        yield from (f"{home}/.gitconfig", f"{home}/.config/git/config")
    folder = real_path(cwd or os.curdir)
    while folder != "/":
        yield f"{folder}/.git/config"
        folder = os.path.dirname(folder)
