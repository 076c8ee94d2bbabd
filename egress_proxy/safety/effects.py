"""What a command does beyond its own words: files it writes, secrets it sends. One phrase each.

Phrases are what rules of the view EFFECT match: `write /dev/sda`, `send secret`. Next: rules.
"""

import re
from collections.abc import Iterator, Sequence

from egress_proxy.safety.quoting import path_of
from egress_proxy.safety.sed_script import Write, parts_of, sed_scripts
from egress_proxy.safety.values import EMPTY, UNKNOWN, Content, Memory, Origin, Word, names

# Names that a pattern in command position is tried against.
RISKY = names(
    "rm sudo su dd mkfs mkfs.ext4 shred wipefs chmod chown curl wget bash sh git find mv nc python3 "
    "perl doas shutdown reboot halt"
)
_SECRET = re.compile(
    r"(?:^|/)\.(?:ssh/(?:id_\w+|[^/]*key)$|aws/credentials|netrc|npmrc|pypirc|git-credentials|pgpass|gnupg/|kube/config|"
    r"docker/config\.json|vault-token|azure/|config/gcloud/|config/gh/hosts|bash_history|zsh_history)|"
    r"(?:^|/)\.env(?:\.\w+)?$|^/etc/g?shadow|(?:^|/)id_(?:rsa|ed25519|ecdsa|dsa)$|\.(?:pem|p12|pfx|key|kdbx)$|"
    r"(?:^|/)\.(?:ssh|gnupg|aws|kube|password-store)(?:/\*?)?$|^/etc/passwd$|^/proc/(?:self|\d+)/environ$|(?:^|/)(?:credentials|secrets?)\.(?:json|ya?ml|txt|toml|ini)$"
)
_SENDERS = names(
    "curl wget nc ncat netcat telnet ftp sftp scp rsync socat http https mail mailx sendmail mutt "
    "aws gsutil rclone dig nslookup host ping s3cmd ssh openssl xh curlie tftp lftp gh glab croc wormhole"
)
# What prints the files that it is given.
READERS = names(
    "cat base64 base32 tar zip gzip xxd hexdump od head tail gpg openssl less strings cpio tac nl dd"
)
_SQL = {
    "psql": ("-c", "--command"),
    "mysql": ("-e", "--execute"),
    "mariadb": ("-e", "--execute"),
    "sqlcmd": ("-Q", "-q"),
    "cockroach": ("-e", "--execute"),
    "clickhouse-client": ("-q", "--query"),
    "clickhouse": ("-q", "--query"),
    "mongosh": ("--eval",),
    "mongo": ("--eval",),
    "cqlsh": ("-e", "--execute"),
    "snowsql": ("-q",),
    "duckdb": ("-c",),
    "cypher-shell": (),
    "bq": (),
    "influx": ("-execute",),
    "sqlite3": (),
    "redis-cli": ("-e",),  # its words are no statements, what flows in is
    "valkey-cli": ("-e",),
}
_MAX_STATEMENTS = 128
# An open text or comment goes on to the end: tried at each place, it would take quadratic time.
_SQL_TEXT = re.compile(r"'(?:[^']|'')*(?:'|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_COPIERS = frozenset({"cp", "mv", "install", "ln", "rsync", "gcp", "gmv"})
_OUTPUT = {"-o", "--output", "-O", "--output-document", "-of"}
# Program -> options whose value is a file that is written.
_OUTPUT_OPTIONS: dict[str, tuple[str, ...]] = {
    "find": ("-fprint", "-fprintf", "-fls", "-fprint0"),
    "openssl": ("-out",),
    **dict.fromkeys(("gcc", "cc", "clang", "ld", "sort"), ("-o", "--output")),
}
_REMOTE = re.compile(r"^[\w.@-]+:(?!//)")


def is_secret(path: str) -> bool:
    return bool(_SECRET.search(path)) and not path.endswith(".pub")


def effects_of(program: str, words: Sequence[Word], stdin: Content, memory: Memory) -> Iterator[str]:
    """``words`` without the program's name."""
    for path, _ in writes_of(program, words, stdin):
        yield f"write {path_of(path, memory.folder)}"
    if program in _SENDERS and _sends_secret(program, words, stdin, memory):
        yield "send secret"
    if program in _SQL:
        yield from _statements(program, [word.text for word in words], stdin)


def _statements(program: str, texts: Sequence[str], stdin: Content) -> Iterator[str]:
    """What a data store is told, without strings and comments, which only mention."""
    flags, kind = _SQL[program], "sqlite" if program == "sqlite3" else "sql"
    given = [
        text for index, text in enumerate(texts) if not flags or (index and _ends_in(texts[index - 1], flags))
    ]
    given += [text.partition("=")[2] for text in texts if text.startswith(flags or "=") and "=" in text]
    given += [text[2:] for text in texts if text.startswith(("-c", "-e")) and len(text) > 2 and flags]
    if stdin.text and stdin.is_known:
        given.append(stdin.text)
    if len(given) > _MAX_STATEMENTS:
        yield "run unknown"
    for text in given[:_MAX_STATEMENTS]:
        yield f"{kind} {' '.join(_SQL_TEXT.sub('', text).split())}"


def _ends_in(text: str, flags: Sequence[str]) -> bool:
    """The flag, or a bundle of short ones that ends in it: `-tAc`."""
    is_bundle = 2 < len(text) < 8 and text[0] == "-" and text[1:].isalpha()
    return text in flags or (is_bundle and f"-{text[-1]}" in flags)


def unpacks_download(program: str, words: Sequence[Word], stdin: Content, memory: Memory) -> bool:
    if program not in ("tar", "unzip", "bsdtar", "7z", "cpio"):
        return False
    files = [memory.files.get(path_of(word.text, memory.folder)) for word in words]
    return any(content is not None and Origin.DOWNLOAD in content.origin for content in (stdin, *files))


def _sends_secret(program: str, words: Sequence[Word], stdin: Content, memory: Memory) -> bool:
    if Origin.SECRET in stdin.origin or any(Origin.SECRET in word.origin for word in words):
        return True
    texts = [word.text for word in words]
    if program in ("scp", "rsync", "sftp", "rclone", "aws", "gsutil"):
        remote = any(_REMOTE.match(text) or "://" in text for text in texts[1:])
        keys = {index + 1 for index, text in enumerate(texts) if text in ("-i", "-F", "-e", "--exclude")}
        local = [
            text for index, text in enumerate(texts[:-1]) if index not in keys and not _REMOTE.match(text)
        ]
        return remote and any(is_secret(text) or text.rstrip("/").endswith(".ssh") for text in local)
    if program in ("gh", "glab", "croc", "wormhole"):
        return bool({"gist", "snippet", "send", "upload"} & set(texts)) and any(map(is_secret, texts))
    if program in ("ftp", "lftp"):
        return any(map(is_secret, texts))
    if program in ("curl", "wget", "http", "https", "xh"):
        files = [(path, memory.files.get(path_of(path, memory.folder), EMPTY)) for path in _uploads(texts)]
        return any(is_secret(path) or Origin.SECRET in content.origin for path, content in files)
    return False


def _uploads(texts: Sequence[str]) -> Iterator[str]:
    """Files whose content is sent."""
    for index, text in enumerate(texts):
        before = texts[index - 1] if index else ""
        if before in ("-T", "--upload-file", "--post-file", "--body-file"):
            yield text
        if "@" in text and before in (
            "-d",
            "-F",
            "--data",
            "--data-binary",
            "--form",
            "--data-urlencode",
            "--data-raw",
        ):
            yield text.partition("@")[2].partition(";")[0]
        if text.startswith(("--post-file=", "--body-file=", "--upload-file=")):
            yield text.partition("=")[2]
        if text.startswith(("-d@", "-F@", "--data=@", "--data-binary=@", "@")):
            yield text.partition("@")[2]
        if text.startswith("-T") and len(text) > 2:
            yield text[2:]


def writes_of(program: str, words: Sequence[Word], stdin: Content) -> Iterator[tuple[str, Content]]:
    """Files that are written, and what is known of their content."""
    texts = [word.text for word in words]
    operands = [text for text in texts if not text.startswith("-")]
    match program:
        case "tee" | "sponge":
            yield from ((path, stdin) for path in operands)
        case "dd" | "dcfldd" | "dc3dd":
            yield from ((text[3:], stdin) for text in texts if text.startswith("of="))
        case "sed" | "perl" | "gsed" if any(re.match(r"-\w*i|--in-place", text) for text in texts):
            yield from ((path, Content(UNKNOWN)) for path in operands[1:])
        case "sed" | "gsed":
            for script in sed_scripts(texts):
                yield from (
                    (part.path, Content(UNKNOWN)) for part in parts_of(script) if isinstance(part, Write)
                )
        case "patch" | "ed" | "ex" | "red":
            yield from ((path, Content(UNKNOWN)) for path in operands)
        case _ if program in _OUTPUT_OPTIONS:
            yield from ((path, Content(UNKNOWN)) for path in _after(texts, _OUTPUT_OPTIONS[program]))
        case "tar" | "bsdtar" | "zip" | "7z":
            yield from _archived(program, texts, operands)
        case "ddrescue":
            yield from ((path, Content(UNKNOWN)) for path in operands[1:])
        case "qemu-img" | "bmaptool":
            yield from ((path.removeprefix("of="), Content(UNKNOWN)) for path in operands[-1:])
            yield from ((text[3:], Content(UNKNOWN)) for text in texts if text.startswith("of="))
        case "wipefs" if not any(re.match(r"-\w*[ao]|--all|--offset", text) for text in texts):
            pass
        case "truncate" | "shred" | "wipefs" | "blkdiscard" | "fallocate":
            yield from ((path, Content(UNKNOWN)) for path in operands)
        case "mkfifo" | "mknod":  # the other end is usually a connection
            yield from ((path, Content(UNKNOWN, Origin.DOWNLOAD)) for path in operands)
        case "curl" | "wget" | "aria2c" | "http" | "https" | "fetch":
            yield from ((path, Content(UNKNOWN, Origin.DOWNLOAD)) for path in _saved(program, texts))
        case _ if program in _COPIERS:
            yield from _copied(texts, operands)


def _archived(program: str, texts: Sequence[str], operands: Sequence[str]) -> Iterator[tuple[str, Content]]:
    """An archive that is made holds secrets where one of its files is one."""
    at = 1 if program != "zip" and len(operands) > 1 else 0
    if program in ("tar", "bsdtar"):
        if len(texts) < 2 or not re.fullmatch(r"-?\w*c\w*f|-?f\w*c\w*", texts[0]):
            return
        operands, at = texts, 1
    if len(operands) > at:
        origin = Origin.SECRET if any(map(is_secret, operands[at + 1 :])) else Origin.NONE
        yield operands[at], Content(UNKNOWN, origin)


def _after(texts: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    for index, text in enumerate(texts[:-1]):
        if text in options:
            yield texts[index + 1]


def _saved(program: str, texts: Sequence[str]) -> Iterator[str]:
    """Where a download is put: the option's value, or the last part of the address."""
    named, folder = False, ""
    for index, text in enumerate(texts):
        following = texts[index + 1] if index + 1 < len(texts) else ""
        if text in ("-P", "--directory-prefix", "--output-dir") or (program == "aria2c" and text == "-d"):
            folder = following.rstrip("/") + "/"
        is_remote_name = (
            program == "curl" and text.startswith("-") and not text.startswith("--") and "O" in text
        )
        if is_remote_name or text == "--remote-name":
            continue
        bundle = re.fullmatch(r"-[a-zA-Z]*([oO])", text) if not text.startswith("--") else None
        if text in _OUTPUT or bundle:
            named = True
            yield folder + following if program == "aria2c" else following
        elif text.startswith(("--output=", "--output-document=")):
            named = True
            yield text.partition("=")[2]
    for text in texts if not named else ():
        name = text.partition("?")[0].rstrip("/").rpartition("/")[2]
        if "://" in text and name:
            yield folder + name


def _copied(texts: Sequence[str], operands: Sequence[str]) -> Iterator[tuple[str, Content]]:
    for index, text in enumerate(texts[:-1]):
        if text in ("-t", "--target-directory"):
            yield texts[index + 1], Content(UNKNOWN)
            return
    if len(operands) > 1:
        origin = Origin.FILE | (Origin.SECRET if any(map(is_secret, operands[:-1])) else Origin.NONE)
        yield operands[-1], Content(UNKNOWN, origin)
        name = operands[0].rstrip("/").rpartition("/")[2]
        yield f"{operands[-1].rstrip('/')}/{name}", Content(UNKNOWN, origin)
