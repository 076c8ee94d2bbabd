"""The public-suffix list, as core/rules.py asks it: is this name a suffix, and of which section?

The only importer of publicsuffixlist. The list is read on the first wildcard, which takes a while.
Next: core/rules.py (what follows from the answer).
"""

import functools
from typing import TYPE_CHECKING

from egress_proxy.core.rules import Suffix

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList


def suffix_of(name: str) -> Suffix:
    """The section that a name is a suffix of. A top-level name that nobody lists counts as ICANN's."""
    icann, both = _lists()
    if icann.publicsuffix(name) == name:
        return Suffix.ICANN
    return Suffix.PRIVATE if both.publicsuffix(name) == name else Suffix.NONE


@functools.cache
def _lists() -> "tuple[PublicSuffixList, PublicSuffixList]":
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(only_icann=True), PublicSuffixList()
