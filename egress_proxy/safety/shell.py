"""Walks a command line in the order the shell would, and collects every simple command in it.

Nothing is run, and nothing is judged: rules see what comes out of here. Next: execution.py (one
simple command), words.py (one word), syntax.py (the tree).
"""

from collections.abc import Callable, Sequence

from tree_sitter import Node

from egress_proxy.safety.assignments import Assignments
from egress_proxy.safety.execution import Executor
from egress_proxy.safety.grammar_gaps import repaired
from egress_proxy.safety.reading import Limit, Reading
from egress_proxy.safety.redirections import SKIPPED, WORDS, Plumbing, Redirections
from egress_proxy.safety.suppositions import BothReadings
from egress_proxy.safety.syntax import Effort, parse, text_of
from egress_proxy.safety.values import (
    EMPTY,
    PRINTED,
    UNKNOWN,
    Command,
    Content,
    Origin,
    Redirect,
    Word,
    names,
    without_marks,
)
from egress_proxy.safety.vanishing import Fields
from egress_proxy.safety.words import Words

__all__ = ["Limit", "Reading", "read_line"]

_VISITS_OF_A_TEXT = 5  # what reading one more text costs, in nodes
_MAX_PIECE = 1_000  # of broken text
_MAX_VALUES = 32  # of a `for` that are followed one by one

_SCANNED = frozenset({"test_command", "arithmetic_expansion", "binary_expression"})
# What is assigned in one of them may not have been, or be gone, behind it.
_BRANCHES = names(
    "if_statement while_statement for_statement case_statement subshell pipeline function_definition"
)
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})


def read_line(line: str) -> Reading:
    """Every simple command of ``line`` for a POSIX shell or bash."""
    reading = Reading()
    walker = Walker(reading)
    walker.read(without_marks(line))
    walker.finish()
    if reading.memory.is_too_deep:
        reading.limits.add(Limit.DEEP)
    if reading.is_full:
        reading.limits.add(Limit.MANY)
    return reading


class Walker:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._words = Words(reading.memory, self._substituted, self.read)
        self._executor = Executor(reading, self.read)
        self._both = BothReadings(reading, self._executor)
        self._redirections = Redirections(self._words, reading.memory, self._executor.file_content)
        self._assignments = Assignments(self._words, reading.memory, self._executor.run_text)
        self._stdin = EMPTY
        self._effort = Effort()
        self._seen: set[tuple[str, str, int]] = set()
        self._plain: dict[str, Callable[[Node, Content], Content]] = {
            "command": self._command,
            "declaration_command": self._assignments.declare,
            "for_statement": self._for,
            "function_definition": self._function,
            "list": self._list,
            "pipeline": self._pipeline,
            "redirected_statement": self._redirected,
            "subshell": self._subshell,
            "unset_command": self._unset,
            "variable_assignment": self._assignments.assign,
        }

    def read(self, text: str, stdin: Content = EMPTY) -> Content:
        """Walk one text, the whole line or one that a shell in it is given; returns what it prints."""
        text = repaired(text)
        self._reading.memory.visited += _VISITS_OF_A_TEXT
        root = parse(text, self._effort)
        if root is None:
            self._reading.limits.add(Limit.UNPARSED)
            return Content(UNKNOWN, Origin.PIPE)
        if root.has_error:
            self._reading.limits.add(Limit.BROKEN)
            self._broken(text)
        return self._run(root, stdin)

    def finish(self) -> None:
        self._executor.finish()

    def _broken(self, text: str) -> None:
        """What the grammar did not take is read once more, as words of a harmless command."""
        for piece in text.replace("&", ";").replace("|", ";").replace("\n", ";").split(";")[:16]:
            root = parse(f": {piece[:_MAX_PIECE]}", self._effort) if piece.strip() else None
            if root is None or root.has_error or not root.named_children:
                continue
            command = root.named_children[0]
            if command.type == "command":
                self._execute([self._readings(child) for child in command.named_children[1:]], EMPTY, [])

    def _run(self, node: Node, stdin: Content) -> Content:
        if not self._reading.has_room():
            return EMPTY
        if not self._reading.memory.enter():
            return EMPTY
        before, self._stdin = self._stdin, stdin
        try:
            with self._reading.memory.branch(node.type in _BRANCHES):
                return self._dispatch(node, stdin)
        finally:
            self._reading.memory.depth -= 1
            self._stdin = before

    def _dispatch(self, node: Node, stdin: Content) -> Content:
        kind = node.type
        action = self._plain.get(kind)
        if action is not None:
            return action(node, stdin)
        if kind in SKIPPED:
            return EMPTY
        if kind in _SCANNED or kind in WORDS:
            self._words.scan(node)
            return EMPTY
        return self._sequence(node.named_children, stdin)

    def _sequence(self, nodes: Sequence[Node], stdin: Content) -> Content:
        printed = EMPTY
        for node in nodes:
            content = self._run(node, stdin)
            if content is not EMPTY:
                printed += content
        return printed

    def _list(self, node: Node, stdin: Content) -> Content:
        """`a && b || c` nests to the left, once for each operator."""
        parts: list[Node] = []
        while node.type == "list":
            children = node.named_children
            parts += reversed(children[1:])
            node = children[0]
        printed = self._run(node, stdin)
        with self._reading.memory.branch():
            return printed + self._sequence(parts[::-1], stdin)

    def _pipeline(self, node: Node, stdin: Content) -> Content:
        content = stdin
        for stage in node.named_children:
            content = self._run(stage, content)
        return content

    def _subshell(self, node: Node, stdin: Content) -> Content:
        folder = self._reading.memory.folder
        with self._reading.memory.branch():
            content = self._sequence(node.named_children, stdin)
        self._reading.memory.folder = folder
        return content

    def _substituted(self, node: Node) -> Content:
        if node.type == "command_substitution" and len(node.named_children) == 1:
            only = node.named_children[0]
            if only.type == "file_redirect":  # $(< file)
                return self._executor.file_content(self._redirections.target(only))
        return self._subshell_guarded(node)

    def _subshell_guarded(self, node: Node) -> Content:
        if not self._reading.memory.enter():
            return Content(UNKNOWN)
        content = self._subshell(node, self._stdin)
        self._reading.memory.depth -= 1
        return content

    def _function(self, node: Node, stdin: Content) -> Content:
        """The body counts once where it stands, and again with its words where it is called."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return EMPTY
        self._reading.define(text_of(name), text_of(body))
        before, self._reading.memory.arguments = self._reading.memory.arguments, None
        self._run(body, stdin)
        self._reading.memory.arguments = before
        return EMPTY

    def _for(self, node: Node, stdin: Content) -> Content:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = [word for child in node.children_by_field_name("value") for word in self._fields(child)]
        if body is None:
            return self._sequence(node.named_children, stdin)
        printed = EMPTY
        if len(values) > _MAX_VALUES:
            values = [*values[:_MAX_VALUES], Word(UNKNOWN)]
        for word in values or [Word(UNKNOWN)]:
            if variable is not None:
                self._reading.memory.assign(text_of(variable), Content(word.text, word.origin))
            printed += self._run(body, stdin)
        return printed

    def _unset(self, node: Node, stdin: Content) -> Content:
        self._reading.note(Command((Word("unset"), *self._assignments.unset(node))))
        return EMPTY

    def _redirected(self, node: Node, stdin: Content) -> Content:
        body = node.child_by_field_name("body")
        own = [child for child in node.named_children if child.type in _REDIRECTS]
        plumbing = self._redirections.read(own)
        given = plumbing.stdin if plumbing.stdin is not None else stdin
        if body is None:
            return self._execute([], given, plumbing.redirects)
        if body.type == "command":
            content = self._command(body, given, plumbing)
        else:  # of a list or a pipeline the redirection is the last one's: the grammar does not tell
            folder = self._reading.memory.folder
            content = self._run(body, given)
            files = [child for child in own if child.type == "file_redirect"]
            if folder != self._reading.memory.folder or any("$" in text_of(child) for child in files):
                plumbing = self._redirections.read(own)
            self._execute([], content, plumbing.redirects)
            self._executor.redirected(content, plumbing.redirects)
        for following in plumbing.after:
            content = self._run(following, content)
        return content

    def _command(self, node: Node, stdin: Content, plumbing: Plumbing | None = None) -> Content:
        if plumbing is None and stdin is EMPTY and self._is_repeated(node):
            return PRINTED
        read: list[Fields] = []
        own: list[Node] = []
        end = -1
        for child in node.named_children:
            if self._reading.memory.is_spent:
                break
            if child.type == "variable_assignment":
                with self._reading.memory.branch(node.child_by_field_name("name") is not None):
                    self._assignments.assign(child)
            elif child.type in _REDIRECTS:
                own.append(child)
            elif child.type not in SKIPPED:
                fields = self._readings(child)
                if child.start_byte == end and read and not text_of(child)[:1].isspace():
                    read[-1] += fields  # the grammar parts a`b`
                else:
                    read.append(fields)
                end = child.end_byte
        local = self._redirections.read(own)
        given = local.stdin if local.stdin is not None else stdin
        redirects = local.redirects + (plumbing.redirects if plumbing else [])
        read += local.extra + (plumbing.extra if plumbing else [])
        return self._execute(read, given, redirects)

    def _is_repeated(self, node: Node) -> bool:
        """The same text was read before, with nothing changed that it could depend on."""
        text = text_of(node)
        if "$" in text or "`" in text or "(" in text:
            return False
        memory = self._reading.memory
        changes = len(memory.files) + len(memory.aliases) + len(self._reading.functions)
        key = (text, memory.folder, changes)
        is_repeated = key in self._seen
        self._seen.add(key)
        return is_repeated

    def _execute(self, read: list[Fields], stdin: Content, redirects: list[Redirect]) -> Content:
        return self._both.execute(read, stdin, redirects)

    def _fields(self, node: Node) -> list[Word]:
        return self._readings(node).words

    def _readings(self, node: Node) -> Fields:
        if node.type == "subshell":  # the grammar takes `! { (…); }` for a command named `{`
            self._run(node, EMPTY)
            return Fields([], [])
        if node.type == "array":
            self._words.scan(node)
            return Fields([], [])
        return self._words.readings(node)
