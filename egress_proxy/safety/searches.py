"""`find` and `xargs`: commands that are run on what is found or read.

Next: wrappers.py (all other wrappers), shell.py (who calls).
"""

from collections.abc import Iterator, Sequence

from egress_proxy.safety.inner import Code, Inner, Words
from egress_proxy.safety.values import UNKNOWN, Content, Origin, Word, names
from egress_proxy.safety.wrapper_options import after_options
from egress_proxy.safety.wrapper_table import Wrapper

_EXECUTES = ("-exec", "-execdir", "-ok", "-okdir")
# Tests that leave everything as it was: depth and order, kinds of file, nothing by name or age.
_NO_FILTER = names(
    "-mindepth -maxdepth -depth -d -type -xdev -mount -delete -print -print0 -exec -execdir -ok "
    "-okdir -ignore_readdir_race -noleaf -true -follow -o -or -a -and"
)
_ALL = ("*", "*.*", "*/*", ".*")  # patterns that everything matches
_XARGS = Wrapper(
    "adEILnPs",
    ("--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-chars"),
)
_PARALLEL = Wrapper("jLNnPSaIdE", ("--jobs", "--arg-file"))
_MAX_APPENDED = 64
_MAX_WORDS = 256
_MAX_EXECUTED = 16  # commands of one `find`


def found_by(words: Sequence[Word]) -> Iterator[Inner]:
    """What `find` (``words`` without its name) runs; `-delete` is told as the `rm` that it is."""
    start = 0
    while start < len(words) and (
        words[start].text in ("-H", "-L", "-P", "-E", "-x") or words[start].text[:2] == "-O"
    ):
        start += 1
    words = words[start:]
    texts = [word.text for word in words]
    ending = _found(texts)
    paths = [f"{root.rstrip('/')}/{ending}" if ending else root for root in _roots(texts)]
    below = [*paths[:2], *(f"{path.rstrip('/')}/*" for path in paths[:2] if not ending and path[:1] in "/~")]
    if "-delete" in texts:
        yield Words(tuple(map(Word, ("rm", "-r", "-f", *paths))))
    end = filled = 0
    for index, text in enumerate(texts):
        if filled == _MAX_EXECUTED:
            yield Code(Content(UNKNOWN))  # more than is read
            return
        if text in _EXECUTES and index >= end:
            inner = _until_end(words[index + 1 :])
            end = index + len(inner)
            filled += 1
            if inner and not ending and inner[0].text in ("chmod", "chown", "chgrp"):
                inner.insert(1, Word("-R"))
            yield from (_filled(inner, path) for path in below[:4] if inner)


def _found(texts: Sequence[str]) -> str:
    """What stands for the files below a root: nothing where the root itself is among them."""
    tests = list(_tests(texts))
    pairs = list(zip(tests, [*tests[1:], ""][: len(tests)], strict=True))
    is_any = "-o" in tests and any(test.startswith("-") and value in _ALL for test, value in pairs)
    if not is_any and any(
        test.startswith(("-", "!")) and test not in _NO_FILTER and value not in _ALL for test, value in pairs
    ):
        return ".git" if ("-name", ".git") in pairs else "found.file"
    return "*" if "-type" in tests and "d" not in tests else ""


def _roots(texts: Sequence[str]) -> list[str]:
    end = 0
    while end < len(texts) and not texts[end].startswith(("-", "(", "!")):
        end += 1
    return list(texts[:end]) or ["."]


def _tests(texts: Sequence[str]) -> Iterator[str]:
    """Without the words of commands that are run."""
    inside = False
    for text in texts:
        if not inside:
            yield text
        inside = text in _EXECUTES or (inside and text not in (";", "+"))


def _until_end(words: Sequence[Word]) -> list[Word]:
    inner: list[Word] = []
    for word in words[:_MAX_WORDS]:
        if word.text in (";", "+", "\\;"):
            break
        inner.append(word)
    return inner


def _filled(words: Sequence[Word], path: str) -> Words:
    return Words(tuple(Word(word.text.replace("{}", path), word.origin) for word in words))


def fed_by(words: Sequence[Word], stdin: Content) -> Iterator[Inner]:
    """What `xargs` (``words`` without its name) runs with the words that flow in."""
    at = after_options(_XARGS, words)
    inner = list(words[at:])
    if not inner:
        return
    mark = _mark(words[:at])
    texts = _units(words[:at], stdin.text, mark is not None) if stdin.is_known else [UNKNOWN]
    origin = stdin.origin & ~Origin.PIPE
    given = [Word(text, origin) for text in texts[:_MAX_APPENDED]]
    if mark is None:
        yield Words((*inner, *given))
        return
    for word in given:
        replaced = (Word(w.text.replace(mark, word.text), w.origin | origin) for w in inner)
        yield Words(tuple(replaced))


def _units(options: Sequence[Word], text: str, by_line: bool) -> list[str]:
    """What one word is: a line where a mark stands for it, what -d or -0 says, else what blanks part."""
    flags = [word.text for word in options]
    if "-0" in flags or "--null" in flags:
        return [part for part in text.split("\0") if part]
    if by_line or any(flag.startswith(("-d", "--delimiter")) for flag in flags):
        return [part.strip() for part in text.replace("\0", "\n").split("\n") if part.strip()]
    return [part.strip("'\"") for part in text.replace("\0", "\n").split()]


def in_parallel(words: Sequence[Word], stdin: Content) -> Iterator[Inner]:
    """GNU parallel, with its values behind `:::` or flowing in."""
    texts = [word.text for word in words]
    split = next((index for index, text in enumerate(texts) if text.startswith(":::")), len(texts))
    at = after_options(_PARALLEL, words[:split])
    template, values = " ".join(texts[at:split]), texts[split + 1 :]
    if split == len(texts):
        values = _units((), stdin.text, by_line=True) if stdin.is_known else [UNKNOWN]
    for value in values[:_MAX_APPENDED] or [""]:
        text = template.replace("{}", value) if "{}" in template else f"{template} {value}"
        yield Code(Content(text, stdin.origin & ~Origin.PIPE))


def _mark(options: Sequence[Word]) -> str | None:
    """The text of -I, which stands for a line."""
    for index, word in enumerate(options):
        if word.text in ("-I", "--replace"):
            return options[index + 1].text if index + 1 < len(options) else "{}"
        if word.text.startswith("-I"):
            return word.text[2:]
        if word.text.startswith(("-i", "--replace=")):
            return word.text.partition("=")[2] or word.text.removeprefix("-i") or "{}"
    return None
