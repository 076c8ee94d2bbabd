"""Variables that a loop gives texts to, one by one: `for r in ["/etc", "/"]`, `["/"].forEach(r => …)`.

Python, JavaScript, Perl, Ruby, PHP, Lua together. Next: foreign.py (reads calls once for each text).
"""

from collections.abc import Sequence

from egress_proxy.safety.foreign_tokens import Kind, Token
from egress_proxy.safety.values import names

MAX_PAIRS = 16
_MAX_TOKENS = 64  # of one list
_MAX_NAMES = 6  # between a loop's word and its variable
_OPENING, _CLOSING = frozenset("([{,\n"), frozenset(")]},\n")
_MAKERS = names("array list tuple set sorted ipairs pairs reversed")
_DECLARING = names("my our local const let var function async do")
_EACH = names("each forEach map flatMap each_with_index each_entry")
_LOOPING = _EACH | names("in of for foreach as")


def loop_values(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    """Pairs of a variable and one of its texts. There were more where they are more than ``MAX_PAIRS``."""
    loops = _Loops(tokens)
    for at, token in enumerate(tokens):
        if token.kind is not Kind.NAME:
            continue
        if token.last in _LOOPING:
            loops.go_through(at, token)
        elif at + 1 < len(tokens) and tokens[at + 1].text == "=":
            loops.lists[token.last] = loops.texts(at + 2, 1)
        if len(loops.pairs) > MAX_PAIRS:
            break
    return loops.pairs


class _Loops:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self.lists: dict[str, list[str]] = {}
        self.pairs: list[tuple[str, str]] = []

    def go_through(self, at: int, token: Token) -> None:
        """The word at ``at`` may make a loop."""
        match token.last:
            case "in" | "of" if at:
                self._add(self._tokens[at - 1].last, self.texts(at + 1, 1))
            case "for" | "foreach":
                while at + 1 < len(self._tokens) and self._tokens[at + 1].last in _DECLARING:
                    at += 1
                is_named = at + 1 < len(self._tokens) and self._tokens[at + 1].kind is Kind.NAME
                variable = self._tokens[at + 1].last if is_named else "_"
                self._add(variable, self.texts(at + 1 + is_named, 1))
            case "as":
                self._add(self._name_after(at), self.texts(at - 1, -1))
            case name if name in _EACH:
                owner = Token(Kind.NAME, token.text.removesuffix(name).rstrip(".:->"))
                listed = self.lists.get(owner.last, []) if owner.text else self.texts(at - 2, -1)
                self._add(self._name_after(at), listed)

    def _add(self, variable: str, texts: Sequence[str]) -> None:
        self.pairs += ((variable, text) for text in texts)

    def _name_after(self, at: int) -> str:
        for token in self._tokens[at + 1 : at + 1 + _MAX_NAMES]:
            if token.kind is Kind.NAME and token.last not in _DECLARING:
                return token.last
        return ""

    def texts(self, at: int, step: int) -> list[str]:
        """Strings from there on, or back from there, with nothing but a list's marks between them."""
        texts: list[str] = []
        marks = _OPENING if step > 0 else _CLOSING
        for _ in range(_MAX_TOKENS):
            if not 0 <= at < len(self._tokens):
                break
            token = self._tokens[at]
            if token.kind is Kind.STRING:
                texts.append(token.text)
            elif token.kind is Kind.LIST:
                texts += token.text.split()
            elif token.kind is Kind.NAME and token.last in self.lists and not texts:
                return self.lists[token.last]
            elif token.text not in marks and token.last not in _MAKERS:
                break
            at += step
        return texts
