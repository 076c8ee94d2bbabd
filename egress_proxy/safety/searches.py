"""`find` and `xargs`: commands that are run on what is found or read.

Next: wrappers.py (all other wrappers), shell.py (who calls).
"""

from collections.abc import Iterator, Sequence

from egress_proxy.safety.inner import Inner, Words
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
    "adEIiLnPs",
    ("--arg-file", "--delimiter", "--replace", "--max-lines", "--max-args", "--max-procs", "--max-chars"),
)
_MAX_APPENDED = 32


def found_by(words: Sequence[Word]) -> Iterator[Inner]:
    """What `find` (``words`` without its name) runs; `-delete` is told as the `rm` that it is."""
    texts = [word.text for word in words]
    roots = _roots(texts)
    paths = [
        f"{root.rstrip('/')}/{ending}" if ending else root for root in roots for ending in [_found(texts)]
    ]
    if "-delete" in texts:
        yield Words(tuple(map(Word, ("rm", "-r", "-f", *paths))))
    end = 0
    for index, text in enumerate(texts):
        if text in _EXECUTES and index >= end:
            inner = _until_end(words[index + 1 :])
            end = index + len(inner)
            yield from (_filled(inner, path) for path in paths[:4] if inner)


def _found(texts: Sequence[str]) -> str:
    """What stands for the files below a root: nothing where the root itself is among them."""
    tests = list(_tests(texts))
    pairs = zip(tests, [*tests[1:], ""][: len(tests)], strict=True)
    if any(
        test.startswith(("-", "!")) and test not in _NO_FILTER and value not in _ALL for test, value in pairs
    ):
        return "found.file"
    return "*" if "-type" in tests and "d" not in tests else ""


def _roots(texts: Sequence[str]) -> list[str]:
    at = 0
    while at < len(texts) and (texts[at] in ("-H", "-L", "-P", "-E", "-x") or texts[at].startswith("-O")):
        at += 1
    end = at
    while end < len(texts) and not texts[end].startswith(("-", "(", "!")):
        end += 1
    return list(texts[at:end]) or ["."]


def _tests(texts: Sequence[str]) -> Iterator[str]:
    """Without the words of commands that are run."""
    inside = False
    for text in texts:
        if not inside:
            yield text
        inside = text in _EXECUTES or (inside and text not in (";", "+"))


def _until_end(words: Sequence[Word]) -> list[Word]:
    inner: list[Word] = []
    for word in words:
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
    texts = stdin.text.replace("\0", "\n").split() if stdin.is_known else [UNKNOWN]
    origin = stdin.origin & ~Origin.PIPE
    given = [Word(text, origin) for text in texts[:_MAX_APPENDED]]
    if mark is None:
        yield Words((*inner, *given))
        return
    for word in given[:8]:
        replaced = (Word(w.text.replace(mark, word.text), w.origin | origin) for w in inner)
        yield Words(tuple(replaced))


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
