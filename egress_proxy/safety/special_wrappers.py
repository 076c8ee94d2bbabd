"""Wrappers with ways of their own: env -S, ssh, git, eval, trap, source, parallel.

Next: wrappers.py (all that a table can tell).
"""

import re
from collections.abc import Callable, Iterator, Sequence

from egress_proxy.safety.inner import STDIN_NAMES, Code, Inner, Script, StandardInput, joined
from egress_proxy.safety.values import Content, Word
from egress_proxy.safety.wrapper_options import after_options
from egress_proxy.safety.wrapper_table import Wrapper

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


def _ssh(words: Sequence[Word]) -> Iterator[Inner]:
    for word in words:
        found = _SSH_COMMAND.search(word.text)
        if found:
            yield Code(Content(found[1]))


def _git(words: Sequence[Word]) -> Iterator[Inner]:
    """Aliases and hooks given on the line, and verbs that run a command for each commit or module."""
    texts = [word.text for word in words]
    for index, text in enumerate(texts):
        _, bang, code = text.partition("=!")
        following = texts[index + 1] if index + 1 < len(texts) else ""
        if bang and index and texts[index - 1] == "-c":
            yield Code(Content(code))
        elif text in ("--exec", "-x") and "rebase" in texts[:index]:
            yield Code(Content(following))
        elif text == "foreach" and "submodule" in texts[:index]:
            yield Code(Content(" ".join(t for t in texts[index + 1 :] if t != "--recursive")))
        elif text in ("--tree-filter", "--index-filter", "--msg-filter", "--commit-filter"):
            yield Code(Content(following))


def _command_query(words: Sequence[Word]) -> Iterator[Inner]:
    """`eval`, `trap`: their words are a shell's text."""
    yield Code(joined([word for word in words if word.text != "--"]))


def _trap(words: Sequence[Word]) -> Iterator[Inner]:
    if len(words) > 1 and not words[0].text.startswith("-"):
        yield Code(Content(words[0].text, words[0].origin))


def _source(words: Sequence[Word]) -> Iterator[Inner]:
    if words:
        is_stdin = words[0].text in STDIN_NAMES
        yield StandardInput() if is_stdin else Script(words[0].text, "sh", tuple(words[1:]))


def _parallel(words: Sequence[Word]) -> Iterator[Inner]:
    texts = [word.text for word in words]
    split = next((index for index, text in enumerate(texts) if text.startswith(":::")), len(texts))
    at = after_options(Wrapper("jLNnPSaIdE", ("--jobs", "--arg-file")), words[:split])
    template, values = " ".join(texts[at:split]), texts[split + 1 :] or [""]
    for value in values[:8]:
        yield Code(Content(template.replace("{}", value) if "{}" in template else f"{template} {value}"))


SPECIAL: dict[str, Callable[[Sequence[Word]], Iterator[Inner]]] = {
    "env": _env,
    "ssh": _ssh,
    "scp": _ssh,
    "sftp": _ssh,
    "git": _git,
    "eval": _command_query,
    "trap": _trap,
    "source": _source,
    ".": _source,
    "parallel": _parallel,
}
