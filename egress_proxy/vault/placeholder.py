"""Secrets that are none: too short, or words that stand in ordinary text. Looking for them would tear it.

Pure. Next: injection.py (who asks which texts are looked for in answers).
"""

# Shorter ones stand in innocent text by chance: five base64 characters in every few megabytes.
LEAST_CHARACTERS = 8

_LISTED = (
    # What local model servers and their clients are given where a key is asked for and none is checked.
    "anything default dummy-key dummykey fake-key fakekey lm-studio lmstudio localhost model-key"
    " no-api-key no-key no-key-needed no-key-required nokey not-needed notneeded not-required notrequired"
    " not-used ollama-key sk-no-key-required unused vllm-key"
    # What stands in examples, and what people leave there.
    " api-key apikey bearer changeit changeme change-me changethis example insert-key-here mysecret my-secret"
    " mytoken my-token password password1 password123 passw0rd placeholder replace-me replaceme secret-key"
    " secretkey some-key some-token test-key test-token testing testkey testtest testtoken undefined"
    " your-api-key your-key your-key-here your-secret your-token your-token-here yourkey"
    " 12345678 123456789 1234567890 abcdefgh abcdefghijklmnopqrstuvwxyz qwertyui qwertyuiop"
)
_WORDS = frozenset(_LISTED.split())


def guessable(text: str) -> str | None:
    """Why a text is not looked for in answers, in words that follow "the secret"; None when it is."""
    if len(text) < LEAST_CHARACTERS:
        return f"is shorter than {LEAST_CHARACTERS} characters"
    folded = text.casefold()
    if folded.replace("_", "-") in _WORDS:
        return "is a common word"
    # `xxxxxxxxxxxx`, `sk-xxxxxxxx`, `--------`.
    if len(set(folded.removeprefix("sk-"))) < 3:
        return "is one or two characters over and over"
    return None
