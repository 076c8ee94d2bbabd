"""Takes a wrapper off: what a command runs besides itself, as words or as a text for a shell.

Knows options of wrappers, no danger. Next: wrapper_table.py, searches.py (find, xargs), shell.py.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

from egress_proxy.safety.inner import (
    STDIN_NAMES,
    Code,
    Inner,
    Script,
    StandardInput,
    Words,
    joined,
    language_of,
    program_of,
)
from egress_proxy.safety.special_wrappers import SPECIAL
from egress_proxy.safety.values import UNKNOWN, Content, Word
from egress_proxy.safety.wrapper_options import after_options
from egress_proxy.safety.wrapper_table import (
    BANG_OPTIONS,
    CODE_FLAGS,
    COMMAND_VARIABLES,
    MENTIONING,
    SHELL_OPERANDS,
    SHELL_OPTIONS,
    WRAPPERS,
    Wrapper,
)

_FED = re.compile(r"system\(\s*\$\d|print\s*\|\s*\"(?:ba|z|da|k)?sh\"")  # what flows into awk is run
_PROGRAM_FOLDERS = ("/bin/", "/sbin/", "/usr/")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)


def unwrap(words: Sequence[Word]) -> Iterator[Inner]:
    """One level of what ``words`` runs."""
    program = program_of(words[0].text)
    rest = words[1:]
    language = language_of(program)
    if language is not None:
        yield from _interpreted(language, rest)
    elif program in ("awk", "gawk", "mawk", "nawk"):
        yield from _awk(rest)
    yield from _option_texts(program, rest)
    special = SPECIAL.get(program)
    if special is not None:
        yield from special(rest)
    wrapper = WRAPPERS.get(program)
    if wrapper is not None:
        yield from _wrapped(program, wrapper, rest)
    elif UNKNOWN in program:  # `"$SH" -c TEXT`: a shell or another interpreter
        yield from _code_behind("-c", rest, "any")
    elif program == "rails":
        yield from _code_behind("runner", rest, "ruby")
    elif program in SHELL_OPERANDS:
        yield from (Code(Content(word.text, word.origin)) for word in rest if word.text[:1] != "-")
    elif language is None and special is None and program not in MENTIONING:
        yield from _tail(rest)


def _tail(words: Sequence[Word]) -> Iterator[Inner]:
    """What a wrapper that no table knows would run, where no ordinary word stands like that."""
    texts = [word.text for word in words]
    for index, text in enumerate(texts):
        name, following = program_of(text), texts[index + 1 : index + 9]
        is_removal = name == "rm" and following[:1] and re.match(r"-\w*[rR]|--rec", following[0])
        is_written = name == "dd" and any(one.startswith("of=/dev/") for one in following)
        is_made = name.startswith("mkfs") and any(one.startswith("/dev/") for one in following)
        if is_removal or is_written or is_made:
            yield Words(tuple(words[index:]))
            return


def _interpreted(language: str, words: Sequence[Word]) -> Iterator[Inner]:
    flags = ("-c",) if language == "sh" else CODE_FLAGS.get(language, ())
    at = 0
    while at < len(words):
        text = words[at].text
        if text in STDIN_NAMES or (language == "sh" and text == "-s"):
            yield StandardInput(language)
            return
        if text == "-m" and language == "python":
            yield Words(tuple(words[at + 1 :]))
            return
        if text == "run" and language in ("bun", "deno"):
            at += 1
            continue
        if text[:1] not in "-+" and text not in flags:
            yield Script(text, language, tuple(words[at + 1 :]))
            if language == "sh" and (text.isalnum() or text.startswith(_PROGRAM_FOLDERS)):
                yield Words(tuple(words[at:]))  # found where programs are, and some are scripts
            if text.endswith("manage.py"):  # `manage.py shell -c CODE`
                yield from _code_behind("-c", words[at + 1 :], language)
            return
        if _is_one_of(text, flags):
            yield from _code_after(language, words, at + 1)
            return
        at += 2 if _takes_value(language, text) else 1
    yield StandardInput(language)


def _code_behind(option: str, words: Sequence[Word], language: str) -> Iterator[Inner]:
    for index, word in enumerate(words[:-1]):
        if word.text == option:
            yield Code(Content(words[index + 1].text, words[index + 1].origin), language)


def _code_after(language: str, words: Sequence[Word], at: int) -> Iterator[Inner]:
    """`bash -c -x TEXT NAME ARG…`: options may follow; the first word after the text is `$0`."""
    while language == "sh" and at < len(words) and words[at].text.startswith("-"):
        at += 1
    if at < len(words):
        content = Content(words[at].text, words[at].origin)
        yield Code(content, language, tuple(words[at + 1 :]))
        for index in range(at + 1, len(words) - 1):
            if language != "sh" and words[index].text in CODE_FLAGS.get(language, ()):
                yield Code(Content(words[index + 1].text, words[index + 1].origin), language)


def _is_one_of(text: str, flags: Sequence[str]) -> bool:
    """Also the last of a bundle: `-lc`."""
    is_short = len(text) > 2 and text[0] == "-" and text[1] not in "-Mm"  # Perl's -MFile=rmtree
    bundle = is_short and f"-{text[-1]}" in flags
    return text in flags or bundle


def _takes_value(language: str, text: str) -> bool:
    if language == "sh":
        return text in ("--rcfile", "--init-file") or (text[1:2] != "-" and text[-1] in "oO")
    return text in ("-W", "-X", "-r", "--require", "-I", "-M", "--import") and language != "perl"


def _awk(words: Sequence[Word]) -> Iterator[Inner]:
    at, given = 0, ""
    while at < len(words) and words[at].text.startswith("-"):
        text, following = words[at].text, words[at + 1].text if at + 1 < len(words) else ""
        if text in ("-f", "--file"):
            yield Script(following, "awk")
            return
        if text in ("-e", "--source"):
            at += 1
            break
        if text.startswith("-v"):
            name, _, value = (text[2:] or following).partition("=")
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            given += f'{name} = "{escaped}";'
        at += 2 if text in ("-F", "-v") else 1
    if at < len(words):
        yield Code(Content(given + words[at].text, words[at].origin), "awk")
        if _FED.search(words[at].text):
            yield StandardInput()


def _option_texts(program: str, words: Sequence[Word]) -> Iterator[Inner]:
    shell, bang = SHELL_OPTIONS.get(program, ()), BANG_OPTIONS.get(program, ())
    for index, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if _is_one_of(word.text, shell) and index + 1 < len(words):
            yield Code(Content(words[index + 1].text, words[index + 1].origin))
        elif equals and name.startswith("--") and name in shell:
            yield Code(Content(value, word.origin))
        elif word.text in bang and index + 1 < len(words):
            yield Code(Content(words[index + 1].text), _prompt_of(program))
        elif program in BANG_OPTIONS and word.text.startswith("+") and len(word.text) > 1:
            yield Code(Content(word.text[1:]), _prompt_of(program))
        elif program == "tar" and word.text.startswith("--checkpoint-action=exec="):
            yield Code(Content(word.text.split("=", 2)[2]))


def _prompt_of(program: str) -> str:
    return "bang" if program in ("psql", "mysql", "gdb", "less", "more") else "vim"


def _wrapped(program: str, wrapper: Wrapper, words: Sequence[Word]) -> Iterator[Inner]:
    if wrapper.verbs:
        words = _below_verb(wrapper.verbs, words)
    if wrapper.after_dashes:
        yield from _after_dashes(words)
        return
    at = start = after_options(wrapper, words)
    while at < len(words) and (_ASSIGNMENT.fullmatch(words[at].text) or words[at].text == "-"):
        name, _, value = words[at].text.partition("=")
        if name in COMMAND_VARIABLES:
            yield Code(Content(value, words[at].origin))
        at += 1
    inner = words[at + wrapper.operands :]
    if wrapper.operands and inner and (inner[0].text == "--" or program in ("ssh", "autossh")):
        inner = inner[after_options(wrapper, inner) :]  # `ssh HOST -t COMMAND`
    if not inner:
        if program in ("ssh", "autossh", "dbclient") and at < len(words):
            yield StandardInput()
        elif program == "uv" and words[-1:] and words[-1].text == "-":
            yield StandardInput("python")
        return
    if wrapper.joins:
        yield Code(joined(inner))
    elif at > start and any("$" in word.text for word in inner):
        yield _with_variables(words[start:at], inner)
    else:
        yield Words(tuple(inner))


def _with_variables(assigned: Sequence[Word], inner: Sequence[Word]) -> Code:
    """`env X='…' sh -c '$X'`, as it would be told to a shell."""
    pairs = (word.text.partition("=") for word in assigned if "=" in word.text)
    texts = [f"{name}={shlex.quote(value)}" for name, _, value in pairs]
    texts += [shlex.quote(word.text) for word in inner]
    return Code(Content(" ".join(texts), joined(inner).origin))


def _below_verb(verbs: Sequence[str], words: Sequence[Word]) -> Sequence[Word]:
    """What follows the first of ``verbs``, which stands among the first words; else nothing."""
    for index, word in enumerate(words[:8]):
        for verb in verbs:
            first, _, second = verb.partition(" ")
            following = words[index + 1].text if index + 1 < len(words) else ""
            if word.text == first and (not second or following == second):
                return words[index + 1 + bool(second) :]
    return ()


def _after_dashes(words: Sequence[Word]) -> Iterator[Inner]:
    for index, word in enumerate(words):
        if word.text == "--" and index + 1 < len(words):
            yield Words(tuple(words[index + 1 :]))
            return
