"""Wrappers with ways of their own: env -S, ssh, git, eval, trap, source, parallel.

Next: wrappers.py (all that a table can tell).
"""

import re
from collections.abc import Callable, Iterator, Sequence

from egress_proxy.safety.git_commands import git_inners
from egress_proxy.safety.inner import STDIN_NAMES, Code, Inner, Script, StandardInput, Words, joined
from egress_proxy.safety.sed_script import Run, parts_of, sed_scripts
from egress_proxy.safety.values import Content, Word, names

_PACKAGE_BINARIES = names("rimraf shx prisma sequelize sequelize-cli knex typeorm")
_DOT_COMMAND = re.compile(r"\s*\.(?:shell|system)\s+(.+)", re.DOTALL)
_SSH_COMMAND = re.compile(r"(?i)(?:proxy|local|remote)command[= ]\s*(.+)", re.DOTALL)


def _env(words: Sequence[Word]) -> Iterator[Inner]:
    for index, word in enumerate(words):
        if word.text in ("-S", "--split-string", "-vS", "-iS"):
            yield Code(joined(words[index + 1 :]))
        elif word.text.startswith(("-S", "--split-string=")):
            text = word.text.partition("=")[2] if word.text.startswith("--") else word.text[2:]
            yield Code(Content(text, word.origin) + joined(words[index + 1 :]))
        else:
            continue
        return


def _env_in_folder(words: Sequence[Word]) -> Iterator[Inner]:
    yield from _env(words)
    for index, word in enumerate(words[:8]):
        name, equals, folder = word.text.partition("=")
        if word.text in ("-C", "--chdir") and index + 1 < len(words):
            yield Code(joined([Word("cd"), words[index + 1], Word(";"), *words[index + 2 :]]))
        elif name == "--chdir" and equals:
            yield Code(joined([Word("cd"), Word(folder), Word(";"), *words[index + 1 :]]))


def _make(words: Sequence[Word]) -> Iterator[Inner]:
    texts = [word.text for word in words]
    files = 0
    for index, text in enumerate(texts):
        following = texts[index + 1] if index + 1 < len(texts) else ""
        path = ""
        if text in ("-f", "--file", "--makefile"):
            path = following
        elif text.startswith(("-f", "--file=", "--makefile=")):
            path = text.partition("=")[2] if text.startswith("--") else text[2:]
        elif text in ("--eval", "-E"):
            yield Code(Content(following), "make")
        elif text.startswith("--eval="):
            yield Code(Content(text.partition("=")[2]), "make")
        if path:
            files += 1
            yield StandardInput("make") if path in STDIN_NAMES else Script(path, "make")
    if not files:
        yield Script("Makefile", "make")


def _sed(words: Sequence[Word]) -> Iterator[Inner]:
    for script in sed_scripts([word.text for word in words]):
        for part in parts_of(script):
            if isinstance(part, Run):
                yield Code(Content(part.text)) if part.text else StandardInput()


def _crontab(words: Sequence[Word]) -> Iterator[Inner]:
    operands = [word.text for word in words if not word.text.startswith("-") or word.text == "-"]
    if any(word.text in ("-l", "-e", "-r") for word in words):
        return
    is_stdin = not operands or operands[-1] in STDIN_NAMES
    yield StandardInput("crontab") if is_stdin else Script(operands[-1], "crontab")


def _at(words: Sequence[Word]) -> Iterator[Inner]:
    texts = [word.text for word in words]
    if "-f" in texts[:-1]:
        yield Script(texts[texts.index("-f") + 1])
    elif not any(text in ("-l", "-r", "-d", "-c", "-V") for text in texts):
        yield StandardInput()


def _line_editor(words: Sequence[Word]) -> Iterator[Inner]:
    yield StandardInput("vim")


def _visual_editor(words: Sequence[Word]) -> Iterator[Inner]:
    if any(word.text in ("-es", "-e", "-s") for word in words):
        yield StandardInput("vim")


def _fd(words: Sequence[Word]) -> Iterator[Inner]:
    texts = [word.text for word in words]
    at = next((i for i, text in enumerate(texts) if text in ("-x", "-X", "--exec", "--exec-batch")), None)
    if at is None:
        return
    operands = [text for text in texts[:at] if not text.startswith("-")]
    path = operands[1] if len(operands) > 1 else "./found.file"
    inner = [Word(word.text.replace("{}", path), word.origin) for word in words[at + 1 :]]
    yield Words(tuple(inner if "{}" in " ".join(texts[at:]) else [*inner, Word(path)]))


def _ssh(words: Sequence[Word]) -> Iterator[Inner]:
    for word in words:
        found = _SSH_COMMAND.search(word.text)
        if found:
            yield Code(Content(found[1]))


def _command_query(words: Sequence[Word]) -> Iterator[Inner]:
    """`eval`, `trap`: their words are a shell's text."""
    yield Code(joined([word for word in words if word.text != "--"]))


def _typed(words: Sequence[Word]) -> Iterator[Inner]:
    """Keys sent to a terminal: a shell is at its other end, most likely."""
    texts = [word.text for word in words]
    at = next((i for i, text in enumerate(texts) if text in ("send-keys", "send", "stuff")), len(texts))
    yield from (Code(Content(text.strip("\n\r"))) for text in texts[at + 1 :] if " " in text)


def _package_binary(words: Sequence[Word]) -> Iterator[Inner]:
    """`yarn NAME`: a package's program. Most names are of scripts, which nobody can know."""
    if words and words[0].text in _PACKAGE_BINARIES:
        yield Words(tuple(words))


def _rimraf(words: Sequence[Word]) -> Iterator[Inner]:
    yield Words((Word("rm"), Word("-rf"), *(word for word in words if not word.text.startswith("-"))))


def _sqlite(words: Sequence[Word]) -> Iterator[Inner]:
    for word in words:
        found = _DOT_COMMAND.match(word.text)
        if found:
            yield Code(Content(found[1], word.origin))


def _trap(words: Sequence[Word]) -> Iterator[Inner]:
    if len(words) > 1 and not words[0].text.startswith("-"):
        yield Code(Content(words[0].text, words[0].origin))


def _source(words: Sequence[Word]) -> Iterator[Inner]:
    if words:
        is_stdin = words[0].text in STDIN_NAMES
        yield StandardInput() if is_stdin else Script(words[0].text, "sh", tuple(words[1:]))


SPECIAL: dict[str, Callable[[Sequence[Word]], Iterator[Inner]]] = {
    "env": _env_in_folder,
    "make": _make,
    "gmake": _make,
    "sed": _sed,
    "gsed": _sed,
    "crontab": _crontab,
    "at": _at,
    "batch": _at,
    "ed": _line_editor,
    "ex": _line_editor,
    "red": _line_editor,
    "vi": _visual_editor,
    "vim": _visual_editor,
    "nvim": _visual_editor,
    "fd": _fd,
    "fdfind": _fd,
    "ssh": _ssh,
    "scp": _ssh,
    "sftp": _ssh,
    "git": git_inners,
    "eval": _command_query,
    "trap": _trap,
    "rimraf": _rimraf,
    "yarn": _package_binary,
    "pnpm": _package_binary,
    "screen": _typed,
    "tmux": _typed,
    "sqlite3": _sqlite,
    "source": _source,
    ".": _source,
}
