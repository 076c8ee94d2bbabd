"""What well-known programs print, where their words say it: echo, printf, base64 -d, tr, …

A few pure functions, no effects. Everything else prints ``PRINTED``. Next: shell.py (pipes them).
"""

import base64
import binascii
import codecs
import re
from collections.abc import Callable, Sequence

from egress_proxy.safety.quoting import ansi
from egress_proxy.safety.values import EMPTY, PRINTED, UNKNOWN, Content, Origin, Word, names, origin_of

_MAX_SCRIPT = 500  # characters of a sed program, whose pattern takes quadratic time, and of a set of tr
MAX_TEXT = 32 * 1024  # `yes | head` and repeated doubling end here

DOWNLOADERS = names(
    "curl wget fetch http https httpie aria2c lynx w3m links elinks xh curlie nc ncat netcat telnet "
    "ftp tftp get lwp-request wget2 axel gsutil-cat socat openssl-s_client"
)
# What passes through these is still what came in, though its text may not be known any more.
_PASSING = names(
    "cat tee sed awk gawk grep egrep fgrep head tail sort uniq tr cut rev gunzip zcat gzip bunzip2 "
    "bzip2 xz unxz zstd base64 base32 openssl xxd jq yq pv buffer dos2unix iconv nl tac fold fmt "
    "expand column envsubst gpg perl python python3 ruby node tar unzip dd strings uudecode paste "
    "xmllint pup stdbuf"
)
_DECODERS = frozenset({"base64", "base32", "xxd", "openssl", "uudecode", "gbase64", "basenc"})
_ALL = ("*", "*.*")  # patterns that everything matches
_SECRET_PRINTERS = re.compile(  # what keeps keys, asked for one
    r"(?:gpg .*--export-secret|security .*find-\w+-password|pass show|op (?:read|item get)|"
    r"secret-tool lookup|history\b|vault (?:kv get|read)|aws secretsmanager get-secret-value|"
    r"kubectl .*get secrets?\b)"
)
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|_KEY$")  # of a variable
_FORMAT = re.compile(r"%(?:[-+ 0#]*\d*(?:\.\d+)?([sbqdiuxXoc])|(%))")
_SUBSTITUTE = re.compile(r"s(.)(.*?)\1(.*?)\1([gi]*)", re.DOTALL)
_AWK_PRINT = re.compile(r'print\s+"((?:[^"\\]|\\.)*)"')
_RANGE = re.compile(r"(.)-(.)", re.DOTALL)


def printed(program: str, words: Sequence[Word], stdin: Content) -> Content:
    """``words`` without the program's name."""
    texts = [word.text for word in words]
    origin = origin_of(words)
    named = [text for text in texts if not text.startswith("-")]
    is_store = _SECRET_PRINTERS.match(" ".join([program, *texts[:4]])) is not None
    if is_store or (program == "set" and not texts):
        return Content(UNKNOWN, Origin.SECRET | Origin.PIPE)
    if program in ("printenv", "env") and (not named or _SECRET_NAME.search(named[0])):
        return Content(UNKNOWN, Origin.SECRET | Origin.PIPE)
    if program in DOWNLOADERS:
        return Content(UNKNOWN, Origin.DOWNLOAD | Origin.PIPE)
    maker = _MAKERS.get(program)
    text = maker(texts, stdin) if maker is not None else None
    if text is not None:
        flowing = stdin.origin if program in _PASSING else Origin.NONE
        return Content(text[:MAX_TEXT], origin | flowing)
    if program in _DECODERS and _decodes(texts):
        return Content(UNKNOWN, stdin.origin | Origin.DECODED | Origin.PIPE)
    if program in _PASSING:
        return Content(UNKNOWN, stdin.origin | Origin.PIPE)
    return PRINTED


def _decodes(texts: Sequence[str]) -> bool:
    flags = ("-d", "-D", "--decode", "-di", "--d", "-r", "-rp", "-revert", "-A", "enc")
    return any(text in flags for text in texts)


def _echo(texts: Sequence[str], _stdin: Content) -> str:
    at, escapes = 0, False
    while at < len(texts) and re.fullmatch(r"-[neE]+", texts[at]):
        escapes = escapes or "e" in texts[at]
        at += 1
    text = " ".join(texts[at:])
    return (ansi(text) if escapes else text) + "\n"


def _printf(texts: Sequence[str], _stdin: Content) -> str | None:
    if texts[:1] in (["-v"], []):
        return None
    arguments = list(texts[1:])
    template = texts[1] if texts[0] == "--" and arguments else texts[0]
    if texts[0] == "--":
        arguments = arguments[1:]

    def fill(found: re.Match[str]) -> str:
        if found[2]:
            return "%"
        argument = arguments.pop() if arguments else ""
        return ansi(argument) if found[1] == "b" else argument

    arguments.reverse()
    template = ansi(template)
    text = _FORMAT.sub(fill, template)
    while arguments and _FORMAT.search(template) and len(text) < MAX_TEXT:
        text += _FORMAT.sub(fill, template)
    return text


def _cat(texts: Sequence[str], stdin: Content) -> str | None:
    return stdin.text if all(text in ("-", "/dev/stdin") or text.startswith("-") for text in texts) else None


def _base64(texts: Sequence[str], stdin: Content) -> str | None:
    operands = [text for text in texts if not text.startswith("-")]
    if not _decodes(texts) or not stdin.is_known or [o for o in operands if o not in ("enc", "base64")]:
        return None
    try:
        return base64.b64decode(re.sub(r"\s", "", stdin.text) + "==").decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return None


def _xxd(texts: Sequence[str], stdin: Content) -> str | None:
    flags = "".join(text for text in texts if text.startswith("-"))
    if "r" not in flags or "p" not in flags or not stdin.is_known:
        return None
    if [text for text in texts if not text.startswith("-")]:
        return None
    try:
        return bytes.fromhex("".join(stdin.text.split())).decode("utf-8", "replace")
    except ValueError:
        return None


def _tr(texts: Sequence[str], stdin: Content) -> str | None:
    if not stdin.is_known or any(len(text) > _MAX_SCRIPT for text in texts):
        return None
    sets = [_RANGE.sub(_spelled, ansi(text)) for text in texts if not text.startswith("-")]
    if not sets:
        return None
    if "-d" in texts:
        return "".join(c for c in stdin.text if c not in sets[0])
    if len(sets) != 2 or not sets[1] or len(texts) != 2:
        return None
    target = sets[1].ljust(len(sets[0]), sets[1][-1])
    return stdin.text.translate({ord(a): b for a, b in zip(sets[0], target, strict=False)})


def _spelled(found: re.Match[str]) -> str:
    first, last = ord(found[1]), ord(found[2])
    return "".join(map(chr, range(first, last + 1))) if first <= last < first + 128 else found[0]


def _rev(_texts: Sequence[str], stdin: Content) -> str | None:
    return "\n".join(line[::-1] for line in stdin.text.split("\n")) if stdin.is_known else None


def _sed(texts: Sequence[str], stdin: Content) -> str | None:
    scripts = [text for text in texts if not text.startswith("-")]
    is_read = len(scripts) == 1 and len(scripts[0]) <= _MAX_SCRIPT and stdin.is_known
    found = _SUBSTITUTE.fullmatch(scripts[0]) if is_read else None
    if found is None or re.search(r"[\\.*\[^$]", found[2]):
        return None
    return stdin.text.replace(found[2], found[3], -1 if "g" in found[4] else 1)


def _awk(texts: Sequence[str], _stdin: Content) -> str | None:
    found = _AWK_PRINT.findall(" ".join(texts))
    return "\n".join(map(ansi, found)) + "\n" if found and "BEGIN" in texts[0] else None


def _which(texts: Sequence[str], _stdin: Content) -> str | None:
    names = [text for text in texts if not text.startswith("-")]
    return f"/usr/bin/{names[0]}\n" if names else None


def _found_names(texts: Sequence[str], _stdin: Content) -> str:
    """Files below what is named, by a name that nobody gives one."""
    roots: list[str] = []
    for text in texts:
        if text.startswith(("(", "!")) or (text.startswith("-") and roots):
            break
        if not text.startswith("-"):
            roots.append(text)
    is_filtered = any(
        text.startswith(("-name", "-iname", "-path", "-regex", "-mtime", "-size")) and value not in _ALL
        for text, value in zip(texts, [*texts, ""][1:], strict=True)
    )
    if is_filtered or not roots:
        return "\n".join(f"{root.rstrip('/')}/found.file" for root in roots or ["."])
    return "\n".join(root if root.endswith("*") else f"{root.rstrip('/')}/*" for root in roots)


def _git(texts: Sequence[str], _stdin: Content) -> str | None:
    if texts[:2] == ["rev-parse", "--show-toplevel"]:
        return "./found.folder"
    return "found.name" if texts[:1] in (["ls-files"], ["branch"], ["diff"], ["tag"], ["grep"]) else None


def _pwd(_texts: Sequence[str], _stdin: Content) -> str:
    return "."


def _rot13(texts: Sequence[str], stdin: Content) -> str | None:
    return codecs.encode(stdin.text, "rot13") if stdin.is_known and not texts else None


_MAKERS: dict[str, Callable[[Sequence[str], Content], str | None]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "tee": lambda _texts, stdin: stdin.text,
    "base64": _base64,
    "gbase64": _base64,
    "openssl": _base64,
    "xxd": _xxd,
    "tr": _tr,
    "rev": _rev,
    "sed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "which": _which,
    "mktemp": lambda texts, _stdin: "/tmp/made.by.mktemp\n",  # noqa: S108 -- a text, nothing is opened
    "find": _found_names,
    "fd": _found_names,
    "ls": _found_names,
    "git": _git,
    "command": lambda texts, stdin: _which(texts, stdin) if "-v" in texts[:1] else None,
    "type": lambda texts, stdin: _which(texts, stdin) if texts[:1] in (["-p"], ["-P"]) else None,
    "pwd": _pwd,
    "rot13": _rot13,
    "head": lambda _texts, stdin: stdin.text if stdin.is_known else None,
    "tail": lambda _texts, stdin: stdin.text if stdin.is_known else None,
    "true": lambda _texts, _stdin: EMPTY.text,
    "cd": lambda _texts, _stdin: EMPTY.text,
}
