"""What `<`, `>`, here-documents and here-strings give to a command and take from it.

Next: shell.py (who calls), words.py, values.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from egress_proxy.safety.quoting import path_of
from egress_proxy.safety.syntax import text_of
from egress_proxy.safety.values import EMPTY, Content, Direction, Memory, Redirect, names
from egress_proxy.safety.vanishing import Fields
from egress_proxy.safety.words import Words

WORDS = names(
    "word string raw_string ansi_c_string translated_string concatenation simple_expansion "
    "expansion number process_substitution brace_expression arithmetic_expansion variable_name "
    "special_variable_name"
)
SKIPPED = frozenset({"comment", "heredoc_end", "heredoc_start", "file_descriptor"})


@dataclass(slots=True)
class Plumbing:
    """Redirections of one command. ``after``: what a here-document's line goes on with."""

    stdin: Content | None = None
    redirects: list[Redirect] = field(default_factory=list)
    extra: list[Fields] = field(default_factory=list)
    after: list[Node] = field(default_factory=list)


class Redirections:
    """``content_of``: what is known of a file."""

    def __init__(self, words: Words, memory: Memory, content_of: Callable[[str], Content]) -> None:
        self._words = words
        self._memory = memory
        self._content_of = content_of

    def read(self, nodes: Sequence[Node]) -> Plumbing:
        plumbing = Plumbing()
        for node in nodes:
            if self._memory.is_spent:
                break
            if node.type == "herestring_redirect":
                for child in node.named_children:
                    content = self._words.content(child)
                    plumbing.stdin = Content(content.text + "\n", content.origin)
            elif node.type == "heredoc_redirect":
                self._here_document(node, plumbing)
            else:
                self._file(node, plumbing)
        return plumbing

    def _here_document(self, node: Node, plumbing: Plumbing) -> None:
        start, body = None, None
        for child in node.named_children:
            if child.type == "heredoc_start":
                start = child
            elif child.type == "heredoc_body":
                body = child
            elif child.type == "file_redirect":
                self._file(child, plumbing)
            elif child.type in WORDS:
                plumbing.extra.append(self._words.readings(child))
            elif child.type not in SKIPPED:
                plumbing.after.append(child)
        if body is None:
            plumbing.stdin = EMPTY
        elif start is not None and text_of(start)[:1] in ("'", '"', "\\"):
            plumbing.stdin = Content(text_of(body))
        else:
            plumbing.stdin = self._words.here_document(body)

    def target(self, node: Node) -> str:
        target = node.child_by_field_name("destination")
        return self._words.content(target).text if target is not None else ""

    def _file(self, node: Node, plumbing: Plumbing) -> None:
        operator = next((child.type for child in node.children if not child.is_named), "")
        # The grammar takes words behind a target for more targets.
        for target in node.children_by_field_name("destination")[1:]:
            plumbing.extra.append(self._words.readings(target))
        path = self.target(node)
        if path.isdigit() or path == "-":
            if operator == "<&":
                plumbing.stdin = self._memory.files.get(f"/dev/fd/{path}", plumbing.stdin)
            return
        path = path_of(path, self._memory.folder)
        for descriptor in node.children_by_field_name("descriptor"):
            if path.startswith("/dev/"):
                self._memory.files[f"/dev/fd/{text_of(descriptor)}"] = self._content_of(path)
        if operator.startswith("<"):
            plumbing.stdin = self._content_of(path)
            plumbing.redirects.append(Redirect(Direction.READ, path))
        else:
            direction = Direction.APPEND if ">>" in operator else Direction.WRITE
            plumbing.redirects.append(Redirect(direction, path))
