"""Shell commands inside programs of other languages: `os.system("…")`, backquotes, rmtree.

Looks for well-known calls, parses no language. Next: execution.py (who calls).
"""

import re
from collections.abc import Iterator

_MAX_FOUND = 32
_STRING = r"""(?:[rbfu]{0,2}"((?:[^"\\]|\\.)*)"|[rbfu]{0,2}'((?:[^'\\]|\\.)*)'|`((?:[^`\\]|\\.)*)`)"""
_CALL = re.compile(
    r"\b(?:system|popen[234]?|exec[vl]?p?e?|execSync|execFileSync|execFile|spawnSync|spawn|shell_exec|passthru|"
    r"proc_open|run|call|check_call|check_output|Popen|getoutput|getstatusoutput|do shell script|qx|"
    r"IO\.popen|os\.execute|startfile|create_subprocess_shell|Command)\b[\s(]*" + _STRING
)
_LIST = re.compile(
    r"\b(?:run|call|check_call|check_output|Popen|spawnSync|spawn|execFileSync|execFile|execvp?|system|exec)\s*"
    r"\(?\s*(?:"
    + _STRING
    + r"\s*,\s*)?[\[(]((?:\s*"
    + _STRING.replace("(", "(?:").replace("(?:?:", "(?:")
    + r"\s*,?)+)[\])]"
)
_ITEM = re.compile(_STRING)
_BACKQUOTE = re.compile(r"`((?:[^`\\]|\\.)*)`|%x\{([^}]*)\}|qx[{(/]([^})/]*)[})/]")
_REMOVE = re.compile(
    r"\b(?:rmtree|rmSync|rmdirSync|rm_rf|rm_r|remove_tree|rimraf|remove_dir_all|removeSync|rmdir_recursive|rm)"
    r"\s*\(?\s*(?:os\.path\.expanduser\(\s*)?" + _STRING
)
_HOME = re.compile(
    r"\b(?:rmtree|rmSync|rm_rf|rimraf)\s*\(?\s*(?:\w+\.)*(?:homedir\(\)|home\(\)|Dir\.home|environ\[.HOME.\])"
)
_WRITE = re.compile(r"\bopen\(\s*" + _STRING + r"\s*,\s*[\"'][wa]")
_FETCHED = re.compile(
    r"\b(?:exec|eval|system|run|compile)\b.*(?:urlopen|requests\.get|urlretrieve|http\.get|fetch\(|open-uri|LWP|"
    r"file_get_contents\(\s*.https?:|(?:popen|check_output|getoutput|run)\(.*\b(?:curl|wget)\b|URI\.open|Net::HTTP)|(?:urlopen|requests\.get|fetch)\(.*\b(?:exec|eval)\(",
    re.DOTALL,
)
_REVERSE = re.compile(
    r"(?:\bsocket\b|fsockopen|TCPSocket|IO::Socket|Socket::INET|net\.connect|net\.Socket|connect\().*"
    r"(?:/bin/(?:ba|z|da|k)?sh|\bdup2\b|pty\.spawn|cmd\.exe|[\"'](?:ba)?sh[\"'])",
    re.DOTALL,
)
_AWK_PIPE = re.compile(r'print\s+"((?:[^"\\]|\\.)*)"\s*\|\s*"((?:[^"\\]|\\.)*)"')


def shell_texts(code: str, language: str) -> Iterator[str]:
    """Command lines that ``code`` would give to a shell; removals are told as the `rm` they are."""
    found = list(_found(code, language))
    yield from found[:_MAX_FOUND]


def _found(code: str, language: str) -> Iterator[str]:
    for match in _CALL.finditer(code):
        yield _text(match.groups()[:3])
    for match in _LIST.finditer(code):
        first = _text(match.groups()[:3])
        items = [_text(item.groups()) for item in _ITEM.finditer(match[4])]
        yield " ".join([first, *map(_shell_quoted, items)]).strip()
    if language in ("perl", "ruby", "php"):
        for match in _BACKQUOTE.finditer(code):
            yield _text(match.groups())
    for match in _REMOVE.finditer(code):
        yield f"rm -rf {_shell_quoted(_text(match.groups()[:3]))}"
    if _HOME.search(code):
        yield "rm -rf ~"
    for match in _WRITE.finditer(code):
        yield f"true > {_shell_quoted(_text(match.groups()[:3]))}"
    for match in _AWK_PIPE.finditer(code) if language == "awk" else ():
        yield f"echo {_shell_quoted(match[1])} | {match[2]}"
    if _REVERSE.search(code):
        yield "sh -i > /dev/tcp/elsewhere/1"
    if _FETCHED.search(code):
        yield "curl fetched | sh"


def _text(groups: tuple[str | None, ...]) -> str:
    text = next((group for group in groups if group is not None), "")
    return re.sub(r"\\(['\"`\\])", r"\1", text)


def _shell_quoted(text: str) -> str:
    if text == "~" or text.startswith("~/"):
        return text
    return "'" + text.replace("'", "'\\''") + "'"
