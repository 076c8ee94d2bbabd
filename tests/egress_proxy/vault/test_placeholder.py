"""Which secrets are none: what a program is given where a key is asked for, and what is left in examples.

See egress_proxy/vault/placeholder.py; what follows from it: test_injection.py.
"""

import secrets

import pytest

from egress_proxy.vault.placeholder import LEAST_CHARACTERS, guessable


@pytest.mark.parametrize("text", ["", "x", "ollama", "EMPTY", "none", "sk-1234"])
def test_what_is_short_is_too_short(text: str) -> None:
    assert guessable(text) == f"is shorter than {LEAST_CHARACTERS} characters"


@pytest.mark.parametrize(
    "text", ["changeme", "CHANGE-ME", "Change_Me", "placeholder", "your_api_key", "not-needed", "lm_studio"]
)
def test_a_listed_word_is_common_in_any_case_and_with_either_hyphen(text: str) -> None:
    assert guessable(text) == "is a common word"


@pytest.mark.parametrize("text", ["xxxxxxxxxxxx", "sk-XXXXxxxx", "--------", "01010101"])
def test_one_or_two_characters_are_no_secret_however_long(text: str) -> None:
    assert guessable(text) == "is one or two characters over and over"


@pytest.mark.parametrize("text", ["changeme-not", "sk-canary", "hunter2!", "012012012"])
def test_anything_else_is_looked_for(text: str) -> None:
    assert guessable(text) is None


def test_what_is_drawn_at_random_is_looked_for() -> None:
    assert not any(guessable(secrets.token_urlsafe(12)) for _ in range(1_000))
