"""Where the options of a wrapper end, and the inner command begins.

Next: wrapper_table.py (which options take a value), wrappers.py.
"""

from collections.abc import Sequence

from egress_proxy.safety.values import Word
from egress_proxy.safety.wrapper_table import Wrapper


def after_options(wrapper: Wrapper, words: Sequence[Word]) -> int:
    """The index of the first word that is no option and no option's value."""
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "--":
            return at + 1
        if not text.startswith("-") or text == "-":
            return at
        at += 2 if _has_value(wrapper, text) else 1
    return at


def _has_value(wrapper: Wrapper, text: str) -> bool:
    """Whether the next word belongs to the option."""
    if text.startswith("--"):
        if "=" in text:
            return False
        return text in wrapper.long_values or (wrapper.flags is not None and text not in wrapper.long_flags)
    letters = text[1:]
    if wrapper.flags is not None:
        taking = [index for index, letter in enumerate(letters) if letter not in wrapper.flags]
    else:
        taking = [index for index, letter in enumerate(letters) if letter in wrapper.values]
    return bool(taking) and taking[0] == len(letters) - 1
