"""Lines for cmd.exe and PowerShell: split into commands with lower-case names, wrappers taken off.

No grammar of either shell: quotes, separators, carets and backquotes. Next: shell.py (the POSIX
side), rules_windows.py.
"""

import base64
import binascii
import re
from collections.abc import Iterator

from egress_proxy.safety.reading import MAX_INNER_TEXT, Limit, Reading
from egress_proxy.safety.values import Command, names, without_marks, words_of

_MAX_LEVELS = 5
_SEPARATOR = re.compile(r"&&|\|\||[&;|\n(){}]")
_TOKEN = re.compile(r"\"(?:[^\"])*\"|'(?:[^'])*'|&&|\|\||[&;|\n(){}]|[^\s\"'&;|(){}]+|\s")
_PARAMETERS = ("-recurse", "-force", "-confirm", "-literalpath", "-path", "-verb", "-number", "-driveletter")
_SLASHED = re.compile(r"(?:/[a-z])+", re.IGNORECASE)
_ASSIGNED = re.compile(r"(\$\w+)\s*=([^;\n]*)")
_SHELLS = {"%comspec%": "cmd", "$env:comspec": "cmd"}
_REMOVERS = frozenset({"ri", "rm", "del", "erase", "rd", "rmdir"})
_NAMES = {
    "erase": "del",
    "rd": "rmdir",
    "iex": "invoke-expression",
    "saps": "start-process",
    "start": "start",
}
_DOWNLOADERS = names(
    "irm iwr curl wget invoke-webrequest invoke-restmethod certutil bitsadmin start-bitstransfer"
)
_DOWNLOADING = re.compile(
    r"(?i)downloadstring|downloadfile|downloaddata|\birm\b|\biwr\b|invoke-webrequest|invoke-restmethod|webclient|"
    r"\bcurl\b|\bwget\b|start-bitstransfer"
)
_RUNNERS = names("invoke-expression powershell pwsh cmd bash sh python node")
_SAVED_BY_CALL = re.compile(r"(?i)downloadfile\([^()]*[\"'\\/]([\w.-]+)[\"']\s*\)")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_MENTION = re.compile(r"(?i)[|;(]|\biex\b|invoke-")
_SAVED = re.compile(r"(?i)(?:^|[\\/ ])([\w.-]+\.(?:exe|bat|cmd|ps1|msi|vbs|js|dll|scr|hta))\b")


def read_windows_line(line: str) -> Reading:
    """Every command of ``line``, whichever of the two shells it is for."""
    reading = Reading()
    _Reader(reading).read(without_marks(line), 0)
    return reading


class _Reader:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._saved: set[str] = set()
        self._fetched: set[str] = set()  # variables that hold what was downloaded

    def read(self, text: str, level: int) -> None:
        was_downloaded = False
        for found in _ASSIGNED.finditer(text):
            if _DOWNLOADING.search(found[2]):
                self._fetched.add(found[1].lower())
        self._reading.text_length += len(text)
        if self._reading.text_length > MAX_INNER_TEXT:
            self._reading.limits.add(Limit.DEEP)
            return
        self._saved.update(found[1].lower() for found in _SAVED_BY_CALL.finditer(text))
        spoken = _QUOTED.sub(_without_mention, text)
        self._reading.note(Command((), (f"line {spoken}",)))
        for words, separator in _split(text):
            if self._reading.is_full:
                break
            self._reading.memory.visited += len(words)
            was_downloaded = self._command(words, level, was_downloaded and separator == "|")

    def _command(self, words: list[str], level: int, downloaded: bool) -> bool:
        """Whether what it prints comes from elsewhere."""
        start = 0
        while start < len(words) and words[start].lower() in (
            "@",
            "call",
            "if",
            "else",
            "do",
            "start-job",
            "&",
            ".",
        ):
            start += 1
        words = words[start:]
        if not words or not self._reading.has_room_for(len(words)):
            return False
        name = _name(words)
        if {"/?", "-whatif"} & set(map(str.lower, words[1:])):  # it tells, and does nothing
            return False
        arguments = [part for word in words[1:] for part in _parted(_parameter(word))]
        effects = list(self._effects(name, words, downloaded))
        self._reading.note(Command(tuple(words_of([name, *arguments])), tuple(effects)))
        for text in _inner(name, words[1:]):
            if level >= _MAX_LEVELS:
                self._reading.limits.add(Limit.DEEP)
                break
            self.read(text, level + 1)
        is_downloader = name in _DOWNLOADERS or bool(_DOWNLOADING.search(" ".join(words)))
        if is_downloader:
            self._saved.update(
                found.lower() for word in words for found in _SAVED.findall(word) if "://" not in word
            )
        return is_downloader or (downloaded and name not in _RUNNERS)

    def _effects(self, name: str, words: list[str], downloaded: bool) -> Iterator[str]:
        text = " ".join(words[1:])
        if name in _RUNNERS and downloaded:
            yield "run download"
        if name == "invoke-expression" and (
            _DOWNLOADING.search(text) or self._fetched.intersection(text.lower().split())
        ):
            yield "run download"
        program = words[0].lower().removeprefix(".\\").removeprefix("./").rpartition("\\")[2]
        launched = [word.lower().rpartition("\\")[2] for word in words[1:8]] if name in _LAUNCHERS else []
        if program in self._saved or f"{program}.exe" in self._saved or self._saved.intersection(launched):
            yield "run download"


_LAUNCHERS = names("start start-process msiexec rundll32 wscript cscript powershell pwsh cmd regsvr32 mshta")


def _split(text: str) -> Iterator[tuple[list[str], str]]:
    """Words of each command, and the separator before it. Linear: one pass of one pattern."""
    words: list[str] = []
    current, before = "", ""
    is_open = False
    for found in _TOKEN.finditer(text):
        token = found[0]
        if _SEPARATOR.fullmatch(token) or token.isspace():
            if is_open:
                words.append(current)
                current, is_open = "", False
            if not token.isspace() or token == "\n":
                if words:
                    yield words, before
                words, before = [], token
        else:
            is_open = True
            current += token[1:-1] if token[0] in "\"'" and len(token) > 1 else _unescaped(token)
    if is_open:
        words.append(current)
    if words:
        yield words, before


def _without_mention(quoted: re.Match[str]) -> str:
    """What runs of a quoted text is read by itself, as the text that a shell is given."""
    return '""' if _MENTION.search(quoted[0]) else quoted[0]


def _unescaped(token: str) -> str:
    return re.sub(r"[\^`](.?)", r"\1", token)


def _name(words: list[str]) -> str:
    name = _SHELLS.get(words[0].lower(), words[0].lower()).rpartition("\\")[2].rpartition("/")[2]
    for suffix in (".exe", ".cmd", ".bat", ".com"):
        name = name.removesuffix(suffix)
    if name in _REMOVERS and (name in ("ri", "rm") or any(word.startswith("-") for word in words[1:])):
        return "remove-item"
    return _NAMES.get(name, name)


def _parameter(word: str) -> str:
    """PowerShell takes a parameter by any beginning of its name."""
    lower = word.lower()
    if lower in ("-rf", "-fr"):
        return "-recurse"
    if re.fullmatch(r"-[a-z]{1,12}(?::.*)?", lower):
        name, colon, value = lower.partition(":")
        for parameter in _PARAMETERS:
            if parameter.startswith(name):
                return parameter + colon + value
    return lower


def _parted(word: str) -> list[str]:
    """`/s/q`: two switches."""
    return [f"/{letter}" for letter in word[1:].split("/")] if _SLASHED.fullmatch(word) else [word]


def _inner(name: str, words: list[str]) -> Iterator[str]:
    """Texts that another shell is given."""
    lower = [word.lower() for word in words]
    for index, word in enumerate(lower):
        if name == "cmd" and word in ("/c", "/k", "/r"):
            yield " ".join(words[index + 1 :])
            return
        elif (
            name in ("powershell", "pwsh")
            and word.startswith(("-e", "/e"))
            and word[1:3] != "ex"
            and index + 1 < len(words)
        ):
            yield _decoded(words[index + 1])
        elif (name in ("powershell", "pwsh") and word.startswith("-c") and "-command".startswith(word)) or (
            name in ("forfiles", "for") and word in ("/c", "do")
        ):
            yield " ".join(words[index + 1 :])
            return
        elif name == "wsl":
            yield " ".join(words)
            return
    if name == "invoke-expression" or (name in ("powershell", "pwsh") and lower and lower[0][0] not in "-/"):
        yield " ".join(words)
    if name == "start" and words:
        at = 0
        while at < len(words) and (words[at].startswith("/") or words[at] == ""):
            at += 1
        yield " ".join(words[at:])


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("utf-16-le", "replace")
    except (binascii.Error, ValueError):
        return ""
