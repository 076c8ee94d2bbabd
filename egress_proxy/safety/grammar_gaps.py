"""What tree-sitter-bash reads otherwise than bash does, written so that both read the same.

Text in, text out. Next: shell.py (reads the text), syntax.py (the grammar).
"""

import re

_COMMENT = re.compile(r"(?:^|\s)#")
# The grammar takes `$IFS/` for a dollar and a word, and a line end before a backslash for a blank.
_QUOTED_NAME = re.compile(r"(?m)(^[ \t]*)\\(?=[\w./])")
# …and no braces that are expanded in the place of a name.
_BRACES_FIRST = re.compile(r"((?:^|[;&|(\n`]|\b(?:then|do|else)\s)[ \t]*)(?=\{[^\s{},;]*,)")
_IFS = re.compile(r"\$IFS\b")
# …and loses a dash that stands alone before a here-document.
_LONE_DASH = re.compile(r"(?<=[ \t])-(?=[ \t]*<<)")
# What is written to a command flows into it.
_INTO_COMMAND = re.compile(r"(?<![>&\d])>[ \t]+>\(([^()]*)\)")
# …and takes the number in `sh 0< f` for a word.
_INPUT_NUMBER = re.compile(r"(?<=[\s;&|])0(?=<[^(<])")
# …and finds no end of a backquote in a backquote.
_BACKQUOTES = re.compile(r"(?<!\\)`((?:[^`\\]|\\.)*)`", re.DOTALL)
# …and ends a here-document's delimiter at its first quote: `<<'EO'F` ends with EOF, and nothing else.
_DELIMITER = re.compile(r"""(?<!<)(<<-?[ \t]*)((?:'[^'\n]*'|"[^"\n]*"|\\[^\n]|[^\s;|&<>()'"\\$`]+){2,})""")
_PIECE = re.compile(r"""'([^'\n]*)'|"([^"\n]*)"|\\(.)""")
_QUOTED_HOME = re.compile(r"([\"'])~(?=[\"'/])")
_PARENTHESIS = re.compile(r"[()]")


def with_home(text: str) -> str:
    """A text made in this line, such as `bash -c "rm -rf \\"$HOME\\""`: its tilde was HOME, quotes or not."""
    return _QUOTED_HOME.sub(r"~\1", text) if "~" in text else text


def repaired(text: str) -> str:
    text = _INTO_COMMAND.sub(r"| \1", text)
    if "\\`" in text:
        text = _BACKQUOTES.sub(_nested, text)
    text = _DELIMITER.sub(_in_one_piece, text)
    text = _INPUT_NUMBER.sub("", _LONE_DASH.sub(r"\\-", text))
    text = _IFS.sub("${IFS}", _QUOTED_NAME.sub(r"\1", parted_subshells(text)))
    return _BRACES_FIRST.sub(r"\1command ", _joined_lines(text))


def _nested(found: re.Match[str]) -> str:
    inner = found[1].replace("\\`", "`")
    return f"$({inner})" if inner != found[1] else found[0]


def _in_one_piece(found: re.Match[str]) -> str:
    start, delimiter = found.groups()
    text = _PIECE.sub(lambda piece: "".join(filter(None, piece.groups())), delimiter)
    return found[0] if text == delimiter or "'" in text else f"{start}'{text}'"


def parted_subshells(text: str) -> str:
    """Arithmetic ends in `))`, and these two close the two that opened it. Quotes are not looked at:
    a blank more between two parentheses changes nothing that is looked for in a quoted text."""
    if "((" not in text:
        return text
    closed_at: dict[int, int] = {}
    opened: list[int] = []
    for found in _PARENTHESIS.finditer(text):
        if found[0] == "(":
            opened.append(found.start())
        elif opened:
            closed_at[opened.pop()] = found.start()
    parts: list[str] = []
    start = 0
    for found in re.finditer(r"\((?=\()", text):
        at = found.start()
        if at in closed_at and closed_at.get(at + 1) != closed_at[at] - 1:
            parts += (text[start : at + 1], " ")
            start = at + 1
    return "".join([*parts, text[start:]])


def _joined_lines(text: str) -> str:
    """Without the line ends that a backslash takes away. A comment has none such."""
    if "\\\n" not in text:
        return text
    parts: list[str] = []
    has_comment = False
    for line in text.split("\n"):
        has_comment = has_comment or _COMMENT.search(line) is not None
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2 and not has_comment:
            parts.append(line[:-1])
        else:
            parts += (line, "\n")
            has_comment = False
    return "".join(parts).removesuffix("\n")
