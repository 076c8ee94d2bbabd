"""Reads and evaluates Seatbelt profiles where there is no macOS: what a profile means, not how it looks.

Refuses what Apple's compiler is known to refuse, and all that it does not know. No copy of Apple's language:
only what the product's profiles may use. Its own tests: tests/test_sbpl.py beside it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

OPERATIONS = frozenset({
    "file-read*", "file-read-data", "file-read-metadata", "file-read-xattr", "file-write*",
    "file-write-data", "file-write-create", "file-write-unlink", "file-write-mode", "file-write-owner",
    "file-write-flags", "file-write-times", "file-write-xattr", "file-write-setugid", "file-ioctl",
    "file-link", "file-clone", "network*", "network-outbound", "network-inbound", "network-bind",
    "system-socket", "process-exec", "process-fork", "process-info*", "process-info-pidinfo", "signal",
    "mach-lookup", "mach-register", "sysctl-read", "sysctl-write", "iokit-open", "pseudo-tty",
    "user-preference-read", "user-preference-write", "ipc-posix-sem", "ipc-posix-shm-read*",
    "ipc-posix-shm-read-data", "ipc-posix-shm-write-create", "ipc-posix-shm-write-data",
    "ipc-posix-shm-write-unlink",
})  # fmt: skip
PROTOCOLS = frozenset({"ip", "tcp", "udp"})
NAME_FILTERS = frozenset({
    "global-name", "local-name", "sysctl-name", "sysctl-name-prefix", "ipc-posix-name-prefix",
    "ipc-posix-name-regex", "iokit-registry-entry-class", "extension",
})  # fmt: skip
FACT_FILTERS = frozenset({"target", "vnode-type", "socket-domain", "socket-protocol"})
# What every dialect of regular expressions has: anything else could mean something else to Apple's.
PORTABLE_REGEX = re.compile(r"""(?:\[\^?[^][\\]+\]|\\[][.^$*+?(){}|]|[^][\\{}*+?"]|\(|[*+?](?![*+?]))*""")


class ProfileError(ValueError):
    """The compiler would refuse this, or nobody here knows what it means."""


class Undecided(AssertionError):
    """The profile means one thing or another, depending on how the order of rules is read."""


@dataclass(frozen=True, slots=True)
class Word:
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Regex:
    text: str


Form = Word | Text | Regex | list["Form"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a program asks for. ``remote``: protocol, host and port, or None for a socket file."""

    path: str | None = None
    remote: tuple[str, str, int] | None = None
    name: str | None = None
    facts: tuple[tuple[str, str], ...] = ()


Filter = Callable[[Subject], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    allows: bool
    operations: tuple[str, ...]
    filters: tuple[Filter, ...]

    def covers(self, operation: str) -> bool:
        return any(
            operation == known or (known.endswith("*") and operation.startswith(known[:-1]))
            for known in self.operations
        )


_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n]+|;[^\n]*)|(?P<open>\()|(?P<close>\))|(?P<regex>\#"[^"]*")"""
    r"""|(?P<text>"[^"\\]*")|(?P<word>[^ \t\r\n()";#\\]+)"""
)


def read_forms(profile: str) -> list[Form]:
    """The forms of a profile, comments left out."""
    stack: list[list[Form]] = [[]]
    position = 0
    while position < len(profile):
        found = _TOKEN.match(profile, position)
        if found is None:
            raise ProfileError(f"unreadable at {profile[position : position + 20]!r}")
        position = found.end()
        match found.lastgroup:
            case "open":
                stack.append([])
            case "close":
                if len(stack) == 1:
                    raise ProfileError("a parenthesis is closed that was not opened")
                form = stack.pop()
                stack[-1].append(form)
            case "regex":
                stack[-1].append(Regex(found[0][2:-1]))
            case "text":
                stack[-1].append(Text(found[0][1:-1]))
            case "word":
                stack[-1].append(Word(found[0]))
    if len(stack) != 1:
        raise ProfileError("a parenthesis is not closed")
    return stack[0]


class Profile:
    """A profile that compiles. Raises ProfileError for one that does not."""

    def __init__(self, text: str) -> None:
        forms = read_forms(text)
        if forms[:2] != [[Word("version"), Word("1")], [Word("deny"), Word("default")]]:
            raise ProfileError("a profile of ours begins with (version 1) and (deny default)")
        self.rules = [_rule(form) for form in forms[2:]]
        bare = [name for rule in self.rules if not rule.filters for name in rule.operations]
        if len(bare) != len(set(bare)):
            raise ProfileError("an operation has two rules without a filter: which one is its default?")

    def allows(self, operation: str, path: str | None = None, **facts: str) -> bool:
        """Whether an operation on a path is allowed; ``facts``: vnode_type, extension and the like."""
        named = tuple((key.replace("_", "-"), value) for key, value in facts.items())
        return self._decide(operation, Subject(path=path, facts=named))

    def connects(self, host: str, port: int, protocol: str = "tcp") -> bool:
        return self._decide("network-outbound", Subject(remote=(protocol, host, port)))

    def looks_up(self, name: str, operation: str = "mach-lookup") -> bool:
        return self._decide(operation, Subject(name=name))

    def _decide(self, operation: str, subject: Subject) -> bool:
        """Both readings of the order, which no document settles, must say the same: the last rule that
        matches; and the last with a filter, else the one without."""
        if operation not in OPERATIONS:
            raise ProfileError(f"no operation {operation}")
        matching = [rule for rule in self.rules if rule.covers(operation) and _matches(rule, subject)]
        filtered = [rule for rule in matching if rule.filters]
        last = bool(matching) and matching[-1].allows
        last_filtered = filtered[-1].allows if filtered else last
        if last != last_filtered:
            raise Undecided(f"{operation} {subject}")
        return last


def _matches(rule: Rule, subject: Subject) -> bool:
    return not rule.filters or any(holds(subject) for holds in rule.filters)


def _rule(form: Form) -> Rule:
    match form:
        case [Word("allow" | "deny" as action), *rest]:
            operations = tuple(part.text for part in rest if isinstance(part, Word))
            filters = tuple(_filter(part) for part in rest if not isinstance(part, Word))
        case _:
            raise ProfileError(f"neither allow nor deny: {form}")
    unknown = set(operations) - OPERATIONS
    if unknown or not operations:
        raise ProfileError(f"unbound variable: {unknown or 'no operation'}")
    return Rule(action == "allow", operations, filters)


def _filter(form: Form) -> Filter:
    match form:
        case [Word("require-all"), *parts] if parts:
            filters = [_filter(part) for part in parts]
            return lambda subject: all(holds(subject) for holds in filters)
        case [Word("require-not"), part]:
            inner = _filter(part)
            return lambda subject: not inner(subject)
        case [Word("literal" | "subpath" as kind), Text(path)]:
            return _path_filter(kind, path)
        case [Word("regex"), Regex(pattern)]:
            found = _compiled(pattern)
            return lambda subject: subject.path is not None and bool(found.search(subject.path))
        case [Word("remote"), Word(protocol), Text(address)]:
            return _address_filter(protocol, address)
        case [Word(kind), Text(name)] | [Word(kind), Regex(name)] if kind in NAME_FILTERS:
            return _name_filter(kind, name)
        case [Word(kind), Word(value)] if kind in FACT_FILTERS:
            return lambda subject: (kind, value) in subject.facts
        case _:
            raise ProfileError(f"unknown filter {form}")


def _path_filter(kind: str, path: str) -> Filter:
    if not path.startswith("/") or (path != "/" and path.endswith("/")):
        raise ProfileError(f"{path!r} is relative or ends in a slash, which never matches")
    folder = path if path == "/" else f"{path}/"
    below = kind == "subpath"
    return lambda subject: (
        subject.path is not None and (subject.path == path or (below and subject.path.startswith(folder)))
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    if not PORTABLE_REGEX.fullmatch(pattern) or "(?" in pattern:
        raise ProfileError(f"{pattern!r} uses more than every dialect has")
    if not pattern.startswith("^/") or not pattern.endswith("$") or pattern.endswith(r"\$"):
        raise ProfileError(f"{pattern!r} is not anchored at both ends")
    try:
        # Python's `$` also matches before a last line end, which a name may be.
        return re.compile(pattern[:-1] + r"\Z")
    except re.error as error:
        raise ProfileError(f"{pattern!r}: {error}") from None


def _address_filter(protocol: str, address: str) -> Filter:
    host, colon, port = address.rpartition(":")
    if protocol not in PROTOCOLS:
        raise ProfileError(f"no protocol {protocol}")
    if not colon:
        raise ProfileError(f"{address!r}: a port is missing in the network address")
    if host not in {"*", "localhost"}:
        raise ProfileError(f"{address!r}: host must be * or localhost in network address")
    if port != "*" and not (re.fullmatch("[1-9][0-9]{0,4}", port) and int(port) < 65536):
        raise ProfileError(f"{address!r}: invalid port in network address")

    def holds(subject: Subject) -> bool:
        if subject.remote is None:
            return False
        its_protocol, its_host, its_port = subject.remote
        local = its_host in {"127.0.0.1", "::1"}
        return (
            protocol in {"ip", its_protocol}
            and (host == "*" or local)
            and (port == "*" or int(port) == its_port)
        )

    return holds


def _name_filter(kind: str, name: str) -> Filter:
    if kind == "extension":
        return lambda subject: (kind, name) in subject.facts
    if kind.endswith("-prefix"):
        return lambda subject: subject.name is not None and subject.name.startswith(name)
    if kind.endswith("-regex"):
        found = _compiled(name)
        return lambda subject: subject.name is not None and bool(found.search(subject.name))
    return lambda subject: subject.name == name
