"""What well-known programs print."""

import pytest

from egress_proxy.safety.filters import printed
from egress_proxy.safety.values import Content, Origin, words_of


@pytest.mark.parametrize(
    ("line", "given", "text"),
    [
        ("echo a b", "", "a b\n"),
        ("echo -e a\\x41", "", "aA\n"),
        ("printf %s-%s\\n a b", "", "a-b\n"),
        ("base64 -d", "cm0=", "rm"),
        ("xxd -r -p", "726d", "rm"),
        ("tr a-c b-d", "abc", "bcd"),
        ("tr -d x", "axb", "ab"),
        ("rev", "mr", "rm"),
        ("sed s/x/rm/", "x", "rm"),
        ("cat", "a", "a"),
        ("which rm", "", "/usr/bin/rm\n"),
        ("pwd", "", "."),
        ("find / -name *", "", "/*"),
        ("find / -name x", "", "/found.file"),
    ],
)
def test_known_output(line: str, given: str, text: str) -> None:
    program, *words = line.split(" ")
    assert printed(program, words_of(words), Content(given)).text == text


def test_downloads_and_decoded_texts_are_marked_and_stay_so() -> None:
    downloaded = printed("curl", words_of(["U"]), Content())
    assert Origin.DOWNLOAD in downloaded.origin
    assert Origin.DOWNLOAD in printed("grep", words_of(["x"]), downloaded).origin
    assert Origin.DECODED in printed("base64", words_of(["-d", "f"]), Content()).origin
    assert Origin.DOWNLOAD in printed("lwp-request", words_of(["U"]), Content()).origin
    assert Origin.SECRET in printed("printenv", [], Content()).origin
    assert Origin.SECRET in printed("printenv", words_of(["API_TOKEN"]), Content()).origin
    assert Origin.SECRET not in printed("printenv", words_of(["PATH"]), Content()).origin
    assert Origin.SECRET in printed("set", [], Content()).origin
    assert Origin.SECRET in printed("gpg", words_of(["--export-secret-keys"]), Content()).origin
    assert Origin.SECRET not in printed("gpg", words_of(["--export", "me"]), Content()).origin
    assert not printed("nproc", [], downloaded).origin & Origin.DOWNLOAD


def test_a_set_of_tr_is_spelled_out_within_bounds() -> None:
    """Ten thousand ranges would become a million letters, and as many entries of a table."""
    words = words_of(["!-~" * 10_000, "!-~"])
    assert not printed("tr", words, Content("a")).is_known
    assert printed("tr", words_of(["a-c", "x-z"]), Content("abc")).text == "xyz"
