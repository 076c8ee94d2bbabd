"""Shell commands inside programs of other languages: `os.system("…")`, backquotes, rmtree.

Looks for well-known calls and for the strings among what they are given; parses no language. Next:
foreign_calls.py (names), foreign_tokens.py (text to tokens), execution.py (who calls).
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from egress_proxy.safety.editor_commands import bang_texts
from egress_proxy.safety.foreign_arguments import Gathering
from egress_proxy.safety.foreign_calls import (
    CALLS,
    EVALUATORS,
    FINDERS,
    FOLDERS,
    LISP_CALLS,
    LISP_REMOVERS,
    REMOVERS,
    UNLINKERS,
    WRITERS,
)
from egress_proxy.safety.foreign_loops import MAX_PAIRS, loop_values
from egress_proxy.safety.foreign_signs import named_plainly, signs
from egress_proxy.safety.foreign_tokens import MAX_TOKENS, Kind, Token, tokens_of
from egress_proxy.safety.make_rules import MAX_LINES, recipes, scheduled

_MAX_FOUND = 64
_MAX_ARGUMENT_TOKENS = 64
_MAX_READ = 6_000  # tokens, of all calls together
_MAX_VALUE = 1_000  # characters of a variable
_READ_PER_CALL = 4  # what it costs to see which loop a call is in
_MAX_LEVELS = 3  # a text in a text: exec("exec(…)")
_COMMANDS = {"args", "argv", "command", "cmd"}  # keywords whose value is part of a command
_TOLD = CALLS | REMOVERS | UNLINKERS | WRITERS | FOLDERS
_STATEMENT_ENDS = {"if", "unless", "or", "and", "while", "for", "do", "end"}

_SPAWN = re.compile(r"(?:^|[\s;\[{])(?:spawn|exec|system)\s+([^;\n\]}]{1,1000})")
_SCRIPT = re.compile(r"do shell script\s+\"((?:[^\"\\]|\\.)*)(?:\"|\Z)([^\n]{0,80})")


def shell_texts(code: str, language: str, give_up: Callable[[], None] = lambda: None) -> Iterator[str]:
    """Command lines that ``code`` would give to a shell; removals are told as the `rm` they are.

    ``give_up`` is called where not all of the code is read."""
    if code.count("\n") > MAX_LINES:
        give_up()
    found: set[str] = set()
    for text in _texts(code, language, give_up):
        if len(found) >= _MAX_FOUND:
            give_up()
            return
        if text not in found:
            yield text
        found.add(text)


def _texts(code: str, language: str, give_up: Callable[[], None]) -> Iterator[str]:
    match language:
        case "make":
            yield from recipes(code)
        case "crontab":
            yield from scheduled(code)
        case "bang":
            yield from bang_texts(code)
        case "vim":
            yield from bang_texts(code)
            yield from _Code(code, language, give_up).found()
        case "any":  # a shell's text, or another language's
            yield code
            yield from _Code(code, language, give_up).found()
        case _:
            yield from _Code(code, language, give_up).found()


class _Code:
    def __init__(self, code: str, language: str, give_up: Callable[[], None], level: int = 0) -> None:
        self._code = code = named_plainly(code)
        self._language = language
        self._give_up = give_up
        self._level = level
        self._tokens = tokens_of(code, language)
        self._values: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._recursive = [at for at, token in enumerate(self._tokens) if token.text.endswith("recursive")]
        self._files: list[str] | None = None  # looked for once
        self._read = 0

    def found(self) -> Iterator[str]:
        if self._language in ("expect", "tclsh"):
            yield from (found[1] for found in _SPAWN.finditer(self._code))
        for found in _SCRIPT.finditer(self._code):
            yield ("sudo " if "administrator" in found[2] else "") + found[1]
        yield from signs(self._code)
        yield from self._told_in_order()
        yield from self._told_in_loops()
        if self._read >= _MAX_READ or len(self._tokens) >= MAX_TOKENS:
            self._give_up()

    def _told_in_order(self) -> Iterator[str]:
        for at, token in enumerate(self._tokens):
            match token.kind:
                case Kind.SHELL:
                    yield token.text
                case Kind.NAME:
                    yield from self._named(at, token)
                case Kind.STRING:
                    yield from self._written(at, token)
                case _:
                    pass

    def _told_in_loops(self) -> Iterator[str]:
        pairs = loop_values(self._tokens)
        if len(pairs) > MAX_PAIRS:
            self._give_up()
        calls = [at for at, token in enumerate(self._tokens) if pairs and token.last in _TOLD]
        for name, text in pairs[:MAX_PAIRS]:
            self._values[name] = text[:_MAX_VALUE]
            for at in calls:
                self._read += _READ_PER_CALL
                if self._read >= _MAX_READ:
                    return
                if any(name in token.text for token in self._tokens[at : at + _MAX_ARGUMENT_TOKENS]):
                    yield from self._named(at, self._tokens[at])

    def _token(self, at: int) -> Token:
        return self._tokens[at] if 0 <= at < len(self._tokens) else Token(Kind.MARK, "")

    def _named(self, at: int, token: Token) -> Iterator[str]:
        name, following = token.last, self._token(at + 1)
        if following.text in ("=", ":", "as"):
            self._bound(name, at + 2)
        if following.text in ("=", "as"):
            return
        if following.text == "|" and self._token(at + 2).text == "getline":  # awk
            yield self._values.get(name, "")
        is_lisp = self._language == "emacs"
        if token.text.endswith(".execute") and token.text != "os.execute":  # a data base's cursor
            return
        name = self._aliases.get(name, name)
        if name in CALLS or (is_lisp and name in LISP_CALLS):
            yield from self._ran(name, self._texts(at))
        if name in FOLDERS:
            yield from (f"cd {_shell_quoted(text)}" for text in self._texts(at)[:1])
        elif name in REMOVERS or (is_lisp and name in LISP_REMOVERS):
            yield from self._removed("-rf", self._texts(at))
        elif name in UNLINKERS:
            is_deep = bisect_left(self._recursive, at) < bisect_left(self._recursive, at + 24)
            is_deep = is_deep or self._language == "vim"
            yield from self._removed("-rf" if is_deep else "-f", self._texts(at))
        elif name in WRITERS:
            yield from self._opened(name, self._texts(at))

    def _bound(self, name: str, at: int) -> None:
        """`x = "…"`: a text; `x = os.system`, `system as x`, `execSync: x`: another name of a call."""
        value, mark = self._token(at), self._token(at - 1).text
        if mark in ("as", ":") and name in CALLS | REMOVERS and value.kind is Kind.NAME:
            self._aliases[value.last] = name
        elif mark == "=" and value.kind is Kind.NAME and self._token(at + 1).text not in ("(", "."):
            if value.last in CALLS | REMOVERS:
                self._aliases[name] = value.last
        elif mark == "=" and value.kind is Kind.STRING:
            texts = self._gathered(at, is_open=False)
            self._values[name] = texts[0][:_MAX_VALUE] if texts else ""

    def _texts(self, at: int) -> list[str]:
        """What a call is given; else what it is a method of: `Path("x").unlink()`."""
        is_open = self._token(at + 1).text == "("
        is_method = self._token(at - 1).text == "."
        is_content = is_method and self._token(at).text in ("write_text", "write_bytes", "execute")
        texts = [] if is_content else self._gathered(at + (2 if is_open else 1), is_open)
        if not texts and is_method:
            start = at - 2
            if self._token(start).text == ")":
                while start > 0 and at - start < 16 and self._token(start).text != "(":
                    start -= 1
            texts = self._gathered(start + (self._token(start).text == "("), is_open=True)
        return texts

    def _gathered(self, at: int, is_open: bool) -> list[str]:
        """Strings with a comma between them, up to the end of the call or of the statement."""
        gathering = Gathering(self._values, parts_words=self._language == "emacs")
        end = min(at + _MAX_ARGUMENT_TOKENS, len(self._tokens))
        while at < end and self._read < _MAX_READ:
            self._read += 1
            token = self._tokens[at]
            if token.kind is Kind.MARK:
                if gathering.is_ended_by(token.text, is_open):
                    break
                gathering.marked(token.text)
            elif token.kind is Kind.NAME:
                if token.last in _STATEMENT_ENDS and not is_open:
                    break
                following = self._token(at + 1).text
                if following in ("=", ":", "=>"):
                    at += 1
                    gathering.skips = token.last not in _COMMANDS
                else:
                    gathering.named(token)
            else:
                gathering.text(token)
            at += 1
        return gathering.finished()

    def _ran(self, name: str, texts: Sequence[str]) -> Iterator[str]:
        if not texts:
            return
        yield texts[0]
        if len(texts) > 1:
            yield " ".join([texts[0], *map(_shell_quoted, texts[1:])])
        if name in EVALUATORS and self._level < _MAX_LEVELS:
            yield from _Code(texts[0], self._language, self._give_up, self._level + 1).found()

    def _removed(self, flags: str, texts: Sequence[str]) -> Iterator[str]:
        if not texts:
            self._files = self._found_files() if self._files is None else self._files
            texts = self._files
        if texts:
            yield " ".join(["rm", flags, *map(_shell_quoted, texts)])

    def _opened(self, name: str, texts: Sequence[str]) -> Iterator[str]:
        """Modes are Python's, Ruby's and PHP's letters, or the marks of Perl before or in the path."""
        path, mode, *rest = (*texts, "", "")
        if name != "open":
            yield f"true > {_shell_quoted(path)}" if path else ""
        elif path.startswith("|") or path.endswith("|"):
            yield path.strip("|")
        elif mode in ("|-", "-|"):
            yield " ".join(rest)
        elif path.strip("+> ") == "":  # open(F, ">", "path"): the handle is no text
            yield f"true > {_shell_quoted(mode)}" if ">" in path else ""
        elif path.startswith((">", "+>")) or mode[:1] in ("w", "a", "x") or mode.startswith("r+"):
            yield f"true > {_shell_quoted(path.lstrip('+> '))}"

    def _found_files(self) -> list[str]:
        """What `unlink(f)` may get from `glob("/etc/*")` elsewhere in the code."""
        found: list[str] = []
        for at, token in enumerate(self._tokens):
            if token.last in FINDERS and self._token(at + 1).text == "(":
                texts = self._gathered(at + 2, is_open=True)
                found += [text if "*" in text else f"{text.rstrip('/')}/*" for text in texts[:1]]
        return found[:_MAX_FOUND]

    def _written(self, at: int, token: Token) -> Iterator[str]:
        """awk: `print … | "sh"`, `print > "file"`, `"command" | getline`."""
        if self._language == "php" and token.text in CALLS | UNLINKERS:  # array_map("unlink", …)
            yield from self._named(at, Token(Kind.NAME, token.text))
        if self._token(at - 1).text == "$":  # Bun's $`…`
            yield token.text
        if self._language != "awk":
            return
        before, after = self._token(at - 1).text, self._token(at + 1)
        if before == "|":
            printed = [t.text for t in self._tokens[max(0, at - 12) : at] if t.kind is Kind.STRING]
            yield f"echo {_shell_quoted(''.join(printed))} | {token.text}"
        elif before == ">":
            yield f"true > {_shell_quoted(token.text)}"
        elif after.text == "|" and self._token(at + 2).text == "getline":
            yield token.text


def _shell_quoted(text: str) -> str:
    if text in ("~", "$HOME") or text.startswith(("~/", "$HOME/")):
        return text
    return "'" + text.replace("'", "'\\''") + "'"
