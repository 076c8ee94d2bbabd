"""Nodes of the tree to words: quotes removed, variables and substitutions filled in where known.

Runs nothing itself: a substitution is handed to ``evaluate``, a text to ``read``. Next: quoting.py, shell.py.
"""

import re
from collections.abc import Callable, Sequence

from tree_sitter import Node

from egress_proxy.safety.quoting import ansi, bare, in_double_quotes, joined_word, split_words
from egress_proxy.safety.syntax import decoded, text_of
from egress_proxy.safety.values import EMPTY, UNKNOWN, Content, Memory, Origin, Word, quoted, unquoted
from egress_proxy.safety.vanishing import Fields, emptied, maybe, never_empty, present

# What everybody's shell knows. HOME is written as a tilde, so that rules know one spelling.
_AMBIENT = {
    "HOME": "~",
    "PWD": ".",
    "IFS": " ",
    "SHELL": "/bin/bash",
    "BASH": "/bin/bash",
    "0": "bash",
    "XDG_CONFIG_HOME": "~/.config",
}
_FIRST_LETTERS = {"HOME": "/root", "PWD": "/", "PATH": "/usr/bin", "SHELL": "/bin/sh"}
_NAME = re.compile(r"\$?\{?(!?)#?(\w+|[@*#?$!-])(\[[^\]]*\])?(.*?)\}?", re.DOTALL)
_PLAIN = re.compile(r"[\w./=:@%+^-]+")  # most words, by far
_SLICE = re.compile(r":\s*(\d+)(?::\s*(\d+))?")
_REPLACE = re.compile(r"(//?)([^/]+)/?(.*)", re.DOTALL)
_DEFAULT = re.compile(r":?[-=]")
_ALTERNATIVE = re.compile(r":?\+")
_MAX_SEPARATORS = 32
_LETTERS_OF_A_VISIT = 512  # long texts are read again in each text that they stand in
_PARAMETERS = ("@", "*")
_BLANK = re.compile(r"\s")
_WHOLE = re.compile(r"\$@|\$\{!?(?:@|\w+\[@\])[^}\"]*\}")  # several words, even in quotes, or none
_ONLY_WHOLES = re.compile(rf'"(?:{_WHOLE.pattern})+"')
_BACKQUOTED = re.compile(r"(?<!\\)`([^`]*)`")
_QUOTED = ("string", "raw_string", "ansi_c_string")
_EVALUATED = ("command_substitution", "process_substitution")


class Words:
    """``memory`` is shared with the walker; ``number`` counts the pipes that `<(…)` stands for."""

    def __init__(
        self, memory: Memory, evaluate: Callable[[Node], Content], read: Callable[[str], Content]
    ) -> None:
        self._memory = memory
        self._read = read
        self._evaluate = evaluate
        self._origin = Origin.NONE
        self._number = 63

    def fields(self, node: Node) -> list[Word]:
        """The words that one argument becomes; none where it expands to nothing."""
        return self.readings(node).words

    def readings(self, node: Node) -> Fields:
        """The same, and without what may be empty."""
        self._memory.visited += 1
        if self._memory.is_spent:
            return Fields([], [])
        if node.type in ("word", "command_name", "number") and _PLAIN.fullmatch(text := text_of(node)):
            words = [Word(text)]
            return Fields(words, words)
        if node.type == "command_name" and len(node.named_children) == 1:
            node = node.named_children[0]
        before, self._origin = self._origin, Origin.NONE
        marked = self._marked(node)
        self._memory.visited += len(marked) // _LETTERS_OF_A_VISIT
        origin, self._origin = self._origin, before
        is_quoted = _keeps_empty(node)

        def words_of(text: str) -> list[Word]:
            texts = split_words(text) if text else [""] * is_quoted
            return [Word(text, origin) for text in texts]

        text, without = present(marked), emptied(marked)
        words, blanks = words_of(text), (text[:1].isspace(), text[-1:].isspace())
        if without == marked or (is_quoted and (not without or _BLANK.search(unquoted(marked)))):
            return Fields(words, words, *blanks)  # a text of several words is read by whom it is given to
        return Fields(words, words_of(without), *blanks)

    def content(self, node: Node) -> Content:
        """One word that is never split."""
        before, self._origin = self._origin, Origin.NONE
        text = joined_word(present(self._marked(node)))
        origin, self._origin = self._origin, before
        return Content(text, origin)

    def here_document(self, node: Node) -> Content:
        """A body whose delimiter is not quoted. The grammar sees no backquotes there."""
        for found in _BACKQUOTED.finditer(text_of(node)):
            self._read(found[1])
        before, self._origin = self._origin, Origin.NONE
        text = joined_word(present(self._with_gaps(node, node.start_byte, node.end_byte)))
        origin, self._origin = self._origin, before
        return Content(text, origin)

    def scan(self, node: Node) -> None:
        """Run what is substituted anywhere below, for what it does. Not recursive: trees are deep."""
        pending = [node]
        while pending and not self._memory.is_spent:
            current = pending.pop()
            self._memory.visited += 1
            if current.type in _EVALUATED:
                self._evaluate(current)
            else:
                pending += current.named_children

    def _marked(self, node: Node) -> str:
        self._memory.visited += 1
        if self._memory.is_spent or not self._memory.enter():
            return UNKNOWN
        marked = self._spelled(node)
        self._memory.depth -= 1
        return marked

    def _spelled(self, node: Node) -> str:
        match node.type:
            case "raw_string":
                return quoted(text_of(node)[1:-1])
            case "ansi_c_string":
                return quoted(ansi(text_of(node)[2:-1]))
            case "string":
                return self._string(node)
            case "concatenation" | "translated_string" | "command_name":
                return self._joined(node.children) if node.children else bare(text_of(node))
            case "simple_expansion" | "expansion":
                return self._expansion(node)
            case "command_substitution":
                return self._substituted(node)
            case "process_substitution":
                return self._pipe(node)
            case "arithmetic_expansion":
                self.scan(node)
                return UNKNOWN
            case "$":
                return ""  # in front of a translated string
            case _:
                return bare(text_of(node))

    def _joined(self, nodes: Sequence[Node]) -> str:
        parts: list[str] = []
        for node in nodes:
            if self._memory.is_spent:
                break
            parts.append(self._marked(node))
        return "".join(parts)

    def _string(self, node: Node) -> str:
        return self._with_gaps(node, node.start_byte + 1, node.end_byte - 1)

    def _with_gaps(self, node: Node, start: int, end: int) -> str:
        """The grammar leaves out blanks between expansions: what lies between the children is text."""
        source, offset = node.text or b"", node.start_byte
        parts, at = [], start
        for child in node.named_children:
            if self._memory.is_spent:
                break
            if child.type in ("string_content", "heredoc_content"):
                continue
            parts.append(in_double_quotes(decoded(source[at - offset : child.start_byte - offset])))
            marked = self._marked(child)
            whole = (
                child.type in ("simple_expansion", "expansion")
                and _WHOLE.fullmatch(text_of(child)) is not None
            )
            parts.append(marked if whole else quoted(marked).replace(quoted("~"), "~"))
            at = child.end_byte
        parts.append(in_double_quotes(decoded(source[at - offset : end - offset])))
        return "".join(parts)

    def _substituted(self, node: Node) -> str:
        content = self._evaluate(node)
        self._origin |= content.origin
        return self._memory.counted(content.text.rstrip("\n"))

    def _pipe(self, node: Node) -> str:
        content = self._evaluate(node)
        path = f"/dev/fd/{self._number}"
        self._number -= 1
        self._memory.files[path] = content
        return path

    def _expansion(self, node: Node) -> str:
        if self._memory.is_spent:
            return UNKNOWN
        whole = text_of(node)
        text = whole.lstrip()  # between two of them the grammar counts a blank to the second
        found = _NAME.fullmatch(text)
        for child in node.named_children:
            if child.type not in ("variable_name", "special_variable_name", "subscript"):
                self.scan(child)
        if found is None or text.startswith("${#"):
            return UNKNOWN
        indirect, name, _index, rest = found.groups()
        known = self._variable(name)
        if indirect and known is not None:
            known = self._variable(known.text)
        if known is not None:
            self._origin |= known.origin
        blank = whole[: len(whole) - len(text)]
        text = self._separated(self._operated(node, name, known, rest))
        if rest.startswith(":?"):
            text = never_empty(text)
        elif name in self._memory.uncertain:
            text = maybe(text)
        return self._memory.counted(blank + text)

    def _separated(self, text: str) -> str:
        """A line may have chosen what parts words."""
        separators = self._memory.variables.get("IFS")
        if separators is None or not separators.is_known:
            return text
        return text.translate({ord(character): " " for character in separators.text[:_MAX_SEPARATORS]})

    def _variable(self, name: str) -> Content | None:
        if name in _PARAMETERS or name.isdigit():
            parameter = self._parameter(name)
            if parameter is not None:
                return parameter
        known = self._memory.variables.get(name)
        if known is None and name in _AMBIENT:
            return Content(_AMBIENT[name])
        return known

    def _parameter(self, name: str) -> Content | None:
        arguments = self._memory.arguments
        if arguments is None or name == "0":
            return None
        if name in _PARAMETERS:
            return Content(" ".join(quoted(word.text) for word in arguments))
        number = int(name[:4])
        return Content(arguments[number - 1].text) if number <= len(arguments) else EMPTY

    def _operands(self, node: Node) -> list[str]:
        return [self._marked(child) for child in node.named_children if child.type != "variable_name"]

    def _operated(self, node: Node, name: str, known: Content | None, rest: str) -> str:
        if _DEFAULT.match(rest) and (known is None or not known.text):
            return "".join(self._operands(node))
        if found := _ALTERNATIVE.match(rest):
            other = "".join(self._operands(node))
            if known is None:
                return maybe(other)
            return other if known.text or found[0] == "+" else ""
        if found := _SLICE.fullmatch(rest):
            text = _FIRST_LETTERS.get(name) if known is None or name in _FIRST_LETTERS else known.text
            start, count = int(found[1][:6]), found[2]
            return UNKNOWN if text is None else text[start:][: int(count[:6]) if count else None]
        if known is None:
            return UNKNOWN
        if found := _REPLACE.fullmatch(rest):
            return known.text.replace(found[2], found[3], -1 if found[1] == "//" else 1)
        if rest[:1] in ("%", "#") and known.text.strip():
            return _trimmed(known.text, rest)
        return known.text


def _keeps_empty(node: Node) -> bool:
    """It is a word even where nothing is in it: `""`, but not `"$@"`."""
    parts = node.named_children if node.type == "concatenation" else [node]
    return any(part.type in _QUOTED and not _ONLY_WHOLES.fullmatch(text_of(part)) for part in parts)


def _trimmed(text: str, operation: str) -> str:
    """`${x%/}`: without the end, or with # the beginning; not known where a pattern says which."""
    part = operation.lstrip(operation[0])
    if not _PLAIN.fullmatch(part):
        return UNKNOWN
    return text.removesuffix(part) if operation[0] == "%" else text.removeprefix(part)
