"""What git runs besides itself: aliases, hooks, pagers and editors given on the line, `!` texts, transports.

Next: special_wrappers.py (the other wrappers with ways of their own).
"""

from collections.abc import Iterator, Sequence

from egress_proxy.safety.inner import Code, Inner, Words
from egress_proxy.safety.values import Content, Word, words_of

# Keys of git's settings, in lower case, whose value git runs.
GIT_COMMAND_KEYS = (
    "core.pager",
    "core.editor",
    "core.sshcommand",
    "core.fsmonitor",
    "core.gitproxy",
    "core.askpass",
    "sequence.editor",
    "diff.external",
    "gpg.program",
    "pager.",
    "filter.",
    "difftool.",
    "mergetool.",
    "credential.helper",
    "uploadpack.packobjectshook",
    "interactive.difffilter",
    "merge.",
)
# Verb -> options whose value a shell is given.
_VERB_OPTIONS: dict[str, tuple[str, ...]] = {
    "rebase": ("--exec", "-x"),
    "difftool": ("--extcmd", "-x"),
    "grep": ("--open-files-in-pager", "-O"),
    "clone": ("--upload-pack", "-u"),
    "fetch": ("--upload-pack",),
    "pull": ("--upload-pack",),
    "ls-remote": ("--upload-pack", "--exec"),
    "push": ("--receive-pack", "--exec"),
    "filter-branch": ("--tree-filter", "--index-filter", "--msg-filter", "--commit-filter", "--env-filter"),
}
_ATTACHED = ("-O", "-x")


def git_inners(words: Sequence[Word]) -> Iterator[Inner]:
    texts = [word.text for word in words]
    verb = _verb(texts)
    for index, text in enumerate(texts):
        following = texts[index + 1] if index + 1 < len(texts) else ""
        if index < verb and text == "-c":
            yield from _setting(*following.partition("=")[::2], called=texts[verb:])
        elif text.startswith("ext::"):
            yield Code(Content(text[5:].replace("% ", "\\ ").replace("%", "")))
        elif text == "foreach" and "submodule" in texts[:index]:
            yield Code(Content(" ".join(t for t in texts[index + 1 :] if t != "--recursive")))
    if verb < len(texts):
        yield from _verb_texts(texts[verb], texts[verb + 1 :])


def _verb(texts: Sequence[str]) -> int:
    at = 0
    while at < len(texts) and texts[at].startswith("-"):
        at += 2 if texts[at] in ("-c", "-C", "--git-dir", "--work-tree", "--namespace", "--exec-path") else 1
    return at


def _setting(key: str, value: str, called: Sequence[str] = ()) -> Iterator[Inner]:
    """``called``: the verb and its words, where an alias may be used at once."""
    key = key.lower()
    if value.startswith("!"):
        yield Code(Content(value[1:]))
    elif key.startswith("alias."):
        is_called = bool(called) and called[0].lower() == key.removeprefix("alias.")
        yield Words((Word("git"), *words_of(value.split()), *words_of(called[1:] if is_called else ())))
    elif value and key.startswith(GIT_COMMAND_KEYS):
        yield Code(Content(value))


def _verb_texts(verb: str, rest: Sequence[str]) -> Iterator[Inner]:
    options = _VERB_OPTIONS.get(verb, ())
    for index, text in enumerate(rest):
        name, equals, value = text.partition("=")
        following = rest[index + 1] if index + 1 < len(rest) else ""
        if text in options:
            yield Code(Content(following))
        elif equals and name in options:
            yield Code(Content(value))
        elif text[:2] in options and text[:2] in _ATTACHED and len(text) > 2:
            yield Code(Content(text[2:]))
    if verb == "config":
        operands = [text for text in rest if not text.startswith("-")]
        operands = operands[1:] if operands[:1] in (["set"], ["add"]) else operands
        if len(operands) == 2:
            yield from _setting(*operands)
