"""The public-suffix list as entries ask it."""

import subprocess
import sys

import pytest

from egress_proxy.core.rules import Suffix
from egress_proxy.suffixes import suffix_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("com", Suffix.ICANN),
        ("co.uk", Suffix.ICANN),
        ("any.kawasaki.jp", Suffix.ICANN),
        ("internal", Suffix.ICANN),
        ("github.io", Suffix.PRIVATE),
        ("googleapis.com", Suffix.PRIVATE),
        ("example.com", Suffix.NONE),
        ("corp.internal", Suffix.NONE),
        ("me.github.io", Suffix.NONE),
    ],
)
def test_the_section_of_a_name(name: str, kind: Suffix) -> None:
    assert suffix_of(name) is kind


def test_the_list_is_not_read_before_the_first_wildcard() -> None:
    code = "import sys, egress_proxy.suffixes; sys.exit('publicsuffixlist' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
