"""What a secret looks like in an answer: every spelling is found where it stands, and nothing else is.

Plain bytes, no streams: those are in test_reflection.py. See egress_proxy/proxy/secret_search.py.
"""

import base64
import html
import json
import random
import textwrap
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.proxy.secret_search import Forms

SECRET = b"kJ8v+Qz3/uvw&<'~*!()\"\\x=="
FORMS = Forms([SECRET])
# Two letters, so that texts overlap one another and themselves; no star, which masking writes.
LETTERS = st.sampled_from(b"ab")
DATA = st.lists(LETTERS, max_size=60).map(bytes)
TEXTS = st.lists(st.lists(LETTERS, min_size=1, max_size=9).map(bytes), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("data", "masked"),
    [
        (b"", b""),
        (b"nothing", b"nothing"),
        (b"sk-1", b"****"),
        (b"xsk-1y", b"x****y"),
        (b"sk-1sk-1", b"********"),
        (b"Bearer sk-1", b"***********"),
        (b"Bearer sk-2 sk-1", b"Bearer sk-2 ****"),
        (b"SK-1 sk-", b"SK-1 sk-"),
    ],
)
def test_every_occurrence_is_starred_in_its_own_length(data: bytes, masked: bytes) -> None:
    forms = Forms([b"sk-1", b"Bearer sk-1"])
    assert forms.mask(data) == masked
    assert forms.found_in(data) == (data != masked)


def test_texts_are_bytes_and_not_patterns() -> None:
    forms = Forms([b"a.*|[b]\\", b"^x$"])
    assert forms.mask(b"aXX|b ^x$ a.*|[b]\\") == b"aXX|b *** ********"


@pytest.mark.parametrize("none", [[], [b""]])
def test_without_texts_nothing_is_found(none: list[bytes]) -> None:
    forms = Forms(none)
    assert forms.mask(b"anything %41 \\u0041") == b"anything %41 \\u0041"
    assert not forms.found_in(b"anything")
    assert forms.window_bytes == 0


@given(TEXTS, DATA)
def test_masked_data_is_as_long_and_holds_no_text(texts: list[bytes], data: bytes) -> None:
    masked = Forms(texts).mask(data)
    assert len(masked) == len(data)
    assert not any(text in masked for text in texts)
    assert all(new in (old, ord("*")) for old, new in zip(data, masked, strict=True))


def small(escaped: str, mark: str) -> str:
    """The hexadecimal digits of escapes in small letters."""
    first, *rest = escaped.split(mark)
    return first + "".join(mark + part[:2].lower() + part[2:] for part in rest)


TEXT = SECRET.decode()
JSON = json.dumps(TEXT)[1:-1]
SPELLED = {
    "as it is": TEXT,
    "Python's quote": quote(TEXT),
    "Python's quote_plus": quote_plus(TEXT),
    "with every character quoted": "".join(f"%{ord(c):02X}" for c in TEXT),
    "in small digits": "".join(f"%{ord(c):02x}" for c in TEXT),
    "encodeURI": quote(TEXT, safe=";,/?:@&=+$-_.!~*'()#"),
    "encodeURIComponent": quote(TEXT, safe="-_.!~*'()"),
    "java.net.URLEncoder": quote(TEXT, safe="-_.*").replace("~", "%7E"),
    "an encoder that leaves the plus": quote(TEXT, safe="+"),
    "JSON": JSON,
    "JSON with escaped slashes": JSON.replace("/", "\\/"),
    "JSON by Go": JSON.replace("&", "\\u0026").replace("<", "\\u003c"),
    "JSON by .NET": JSON.replace("+", "\\u002B").replace("&", "\\u0026").replace("'", "\\u0027"),
    "JSON by Gson": JSON.replace("=", "\\u003d").replace("'", "\\u0027"),
    "JSON with every character escaped": "".join(f"\\u{ord(c):04x}" for c in TEXT),
    "a Python literal": repr(TEXT)[1:-1],
    "several at once": f"%6B\\u004A{TEXT[2:8]}\\/{TEXT[9:]}".replace("8", "%38"),
    "base64": base64.b64encode(SECRET).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(SECRET).decode(),
    "base64, quoted": quote(base64.b64encode(SECRET).decode(), safe=""),
    "base64 in JSON of .NET": base64.b64encode(SECRET).decode().replace("+", "\\u002B"),
}


@pytest.mark.parametrize("spelled", SPELLED.values(), ids=SPELLED.keys())
def test_what_encoders_make_of_a_secret_is_starred(spelled: str) -> None:
    data = b"[" + spelled.encode() + b"]"
    assert FORMS.found_in(data)
    masked = FORMS.mask(data)
    assert len(masked) == len(data)
    # Of base64 the last character may hold bits of what follows, and its padding is nothing of the secret.
    assert len(masked.strip(b"[]").lstrip(b"*")) <= len("Q%3D%3D")


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\\n", "\\r\\n"])
def test_base64_broken_into_lines_is_starred(before: int, width: int, line_end: str) -> None:
    long = bytes(random.Random(1).choices(range(33, 127), k=120))
    encoded = base64.b64encode(b"x" * before + long + b"yz").decode()
    data = line_end.join(textwrap.wrap(encoded, width)).encode()
    masked = Forms([long]).mask(data)
    assert masked.count(b"*") > len(encoded) - 10
    assert len(masked) == len(data)


@pytest.mark.parametrize("spelled", ["sk-an%2Dap", "sk-an\\u002Dap", "sk-an-a%70"])
def test_a_form_after_half_an_escape_is_found(spelled: str) -> None:
    """`%4` and a key that begins with `1` look like one escape; the key stands there all the same."""
    forms = Forms([b"41ab41ab"])
    for lead in (b"%", b"%4", b"\\u00", b"\\", b"%%", spelled.encode()):
        assert forms.mask(lead + b"41ab41ab") == lead + b"*" * 8


SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40)


@given(SECRETS)
def test_url_and_json_spellings_of_any_secret_are_starred(secret: str) -> None:
    forms = Forms([secret.encode()])
    for spelled in (
        secret,
        quote(secret),
        quote(secret, safe="!'()*"),
        quote_plus(secret),
        small(quote(secret, safe=""), "%"),
        json.dumps(secret)[1:-1],
        json.dumps(secret)[1:-1].replace("/", r"\/"),
    ):
        assert forms.mask(spelled.encode()) == b"*" * len(spelled)


@given(st.binary(max_size=20), SECRETS, st.binary(max_size=20))
def test_base64_of_a_longer_text_holds_a_form_at_every_place(
    before: bytes, secret: str, after: bytes
) -> None:
    forms, text = Forms([secret.encode()]), before + secret.encode() + after
    assert forms.found_in(base64.b64encode(text))
    assert forms.found_in(base64.urlsafe_b64encode(text))


@given(st.binary(max_size=5), st.binary(max_size=5))
def test_base64_of_something_else_holds_no_form(before: bytes, after: bytes) -> None:
    assert not Forms([b"sk-CANARY-123"]).found_in(base64.b64encode(before + b"sk-CANARZ-123" + after))


def test_a_blank_may_be_a_plus_sign_each_time() -> None:
    forms = Forms([b"Bearer a b c d e"])
    for spelled in (b"Bearer+a+b+c+d+e", b"Bearer a+b c+d e", b"Bearer%20a+b c%20d+e"):
        assert forms.mask(spelled) == b"*" * len(spelled)


def test_what_is_not_looked_for_stays() -> None:
    """The list of SECURITY.md, so that it is true."""
    for spelled in (SECRET.hex(), html.escape(TEXT), TEXT[::-1], TEXT.swapcase(), quote(quote(TEXT))):
        assert not FORMS.found_in(spelled.encode())


@given(st.binary(max_size=300), st.integers(0, 2**32))
def test_the_quick_way_and_the_pattern_agree(noise: bytes, seed: int) -> None:
    chosen = random.Random(seed)
    spelled = chosen.choice(list(SPELLED.values())).encode()
    cut = chosen.randrange(len(spelled) + 1)
    for data in (noise, noise + spelled + noise, noise + spelled[:cut] + noise):
        assert FORMS.found_in(data) == (FORMS.mask(data) != data)


def test_a_long_secret_is_found_whole_and_by_its_beginning() -> None:
    token = bytes(random.Random(2).choices(range(48, 123), k=16_384)).replace(b"\\", b"x")
    forms = Forms([token])
    assert forms.mask(token) == b"*" * len(token)
    assert forms.mask(quote(token).encode()).startswith(b"*" * 2_048)


@pytest.mark.parametrize(
    "piece", [b"a", b"%61", b"\\u0061", b"%", b"\\", b"aaaaaaab", b"%6", b"YWFh", b"YWFh\n"]
)
def test_a_hostile_text_is_searched_in_linear_time(piece: bytes) -> None:
    """The bound is that of a hang: in quadratic time it would take minutes."""
    forms = Forms([b"a" * 200 + b"b"])
    data = piece * (4_000_000 // len(piece))
    started = time.process_time()
    forms.mask(data)
    assert time.process_time() - started < 2
