"""`x=…`, `export x=…`, `unset x`: what a variable holds from then on, and whether it certainly does.

Next: shell.py (who calls), words.py (values), values.py (the memory).
"""

from collections.abc import Callable

from tree_sitter import Node

from egress_proxy.safety.syntax import text_of
from egress_proxy.safety.values import EMPTY, Content, Memory, Word
from egress_proxy.safety.words import Words
from egress_proxy.safety.wrapper_table import COMMAND_VARIABLES


class Assignments:
    """``run_text`` follows a text that some program will give to a shell."""

    def __init__(self, words: Words, memory: Memory, run_text: Callable[[Content], None]) -> None:
        self._words = words
        self._memory = memory
        self._run_text = run_text

    def assign(self, node: Node, _stdin: Content = EMPTY) -> Content:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return EMPTY
        content = self._value(value) if value is not None else EMPTY
        if text_of(name) in COMMAND_VARIABLES:
            self._run_text(Content(content.text.lstrip("|- "), content.origin))  # LESSOPEN="|…"
        variable, is_element, _ = text_of(name).partition("[")
        before = self._memory.variables.get(variable, EMPTY)
        if is_element and before.text:
            content = before + Content(f" {content.text}", content.origin)
        elif any(child.type == "+=" for child in node.children):
            joint = Content(" " if value is not None and value.type == "array" else "")
            content = before + joint + content
        self._memory.assign(variable, Content(self._memory.counted(content.text), content.origin))
        return EMPTY

    def _value(self, node: Node) -> Content:
        if node.type == "array":
            words = [word for child in node.named_children for word in self._words.fields(child)]
            return Content(" ".join(word.text for word in words))
        return self._words.content(node)

    def declare(self, node: Node, _stdin: Content) -> Content:
        """`export`, `local`, …: assignments that look like arguments."""
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assign(child)
            else:
                self._words.scan(child)
        return EMPTY

    def unset(self, node: Node) -> list[Word]:
        """The words behind the name."""
        self._words.scan(node)
        words: list[Word] = []
        for child in node.named_children:
            if self._memory.is_spent:
                break
            self._memory.visited += 1
            words.append(Word(text_of(child)))
            self._memory.variables[words[-1].text.partition("[")[0]] = EMPTY
        return words
