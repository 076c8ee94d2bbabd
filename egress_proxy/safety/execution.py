"""One simple command: notes it, takes wrappers off, follows texts that it gives to a shell.

Judges nothing. Next: wrappers.py, filters.py, effects.py (what the command does beside its words).
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence

from egress_proxy.safety import filters, searches
from egress_proxy.safety.effects import READERS, RISKY, effects_of, is_secret, unpacks_download, writes_of
from egress_proxy.safety.foreign import shell_texts
from egress_proxy.safety.foreign_signs import runs_decoded
from egress_proxy.safety.grammar_gaps import with_home
from egress_proxy.safety.inner import (
    Code,
    Inner,
    Script,
    StandardInput,
    Words,
    language_of,
    program_of,
)
from egress_proxy.safety.quoting import path_of
from egress_proxy.safety.reading import MAX_LEVELS, MAX_TEXT_LEVELS, Limit, Reading
from egress_proxy.safety.values import (
    EMPTY,
    PRINTED,
    UNKNOWN,
    Command,
    Content,
    Direction,
    Origin,
    Redirect,
    Word,
    words_of,
)
from egress_proxy.safety.wrappers import unwrap

_MAX_DEFERRED = 16  # texts of `trap`
_MAX_READ = 32  # files of one `cat`
_MAX_PATTERN = 32  # fnmatch takes time that grows with the square of a pattern
_SOCKETS = ("/dev/tcp/", "/dev/udp/")
# Names that an archive gives to what is meant to be run; `./configure && make` is everyday work.
_FROM_ARCHIVE = re.compile(r"(?:^|/)(?:install|setup|bootstrap|run)[^/]*$|\.sh$")
_QUIET = frozenset({"cd", "set", "read", "mapfile", "readarray", "alias", "export", "true", "false", ":"})


class Executor:
    """``read`` walks a text as a shell would, given its standard input, and returns what it prints."""

    def __init__(self, reading: Reading, read: Callable[[str, Content], Content]) -> None:
        self._reading = reading
        self._memory = reading.memory
        self._read = read
        self._level = 0
        self._text_level = 0
        self._calling: set[str] = set()
        self._deferred: list[Inner] = []

    def execute(self, words: list[Word], stdin: Content, redirects: Sequence[Redirect] = ()) -> Content:
        """Returns what goes down the pipe."""
        if not self._reading.has_room_for(len(words)):
            return PRINTED
        if self._level >= MAX_LEVELS:
            self._reading.limits.add(Limit.DEEP)
            return PRINTED
        self._level += 1
        content = self._executed(words, stdin, redirects)
        self._level -= 1
        self.redirected(content, redirects)
        if Origin.SECRET in content.origin and any(r.path.startswith(_SOCKETS) for r in redirects):
            self._reading.note(Command(tuple(words), ("send secret",)))
        written = any(redirect.direction is not Direction.READ for redirect in redirects)
        return Content("", content.origin & Origin.NONE) if written and not words else content

    def _executed(self, words: list[Word], stdin: Content, redirects: Sequence[Redirect]) -> Content:
        effects = [f"{redirect.direction} {redirect.path}" for redirect in redirects]
        if not words:
            self._reading.note(Command((), tuple(effects), self._memory.folder))
            return EMPTY
        words = self._named(words)
        program = program_of(words[0].text)
        if words[0].text in self._memory.aliases and words[0].text not in self._calling:
            return self._expanded(words, stdin)
        if language_of(program) and any(r.path.startswith(_SOCKETS) for r in redirects):
            effects.append("reverse shell")
        if Origin.DOWNLOAD in words[0].origin:
            effects.append("run download")
        effects += effects_of(program, words[1:], stdin, self._memory)
        inners = list(self._inners(program, words, stdin))
        effects += [effect for inner in inners for effect in self._running(inner, stdin)]
        self._reading.note(Command(tuple(words), tuple(effects), self._memory.folder))
        printed = self._printed(program, words, stdin)
        if program == "trap":
            self._deferred += inners
        for inner in inners if program != "trap" else ():
            printed = self._follow(inner, stdin, printed)
        printed = PRINTED if program == "ssh" and Origin.FILE in printed.origin else printed
        self._remember(program, words[1:], stdin)
        if words[0].text in self._reading.functions:
            printed = self._called(words, stdin)
        return printed

    def _named(self, words: list[Word]) -> list[Word]:
        """`/bin/r?`: what a pattern in the place of the name could find."""
        name = words[0].text
        pattern = name.rpartition("/")[2]
        is_elsewhere = "/" in name or self._memory.folder != "."  # here, there are files of the project
        if is_elsewhere and len(pattern) <= _MAX_PATTERN and any(mark in pattern for mark in "*?["):
            for program in sorted(RISKY):
                if fnmatch.fnmatchcase(program, pattern):
                    return [Word(program), *words[1:]]
        return words

    def _inners(self, program: str, words: list[Word], stdin: Content) -> Iterator[Inner]:
        if program == "find":
            return searches.found_by(words[1:])
        if program == "parallel":
            return searches.in_parallel(words[1:], stdin)
        if program == "xargs":
            return searches.fed_by(words[1:], stdin)
        if program == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
            return iter(())
        if program == "." or language_of(program) or "/" not in words[0].text:
            return unwrap(words)
        is_script = self._memory.is_unpacked and _FROM_ARCHIVE.search(words[0].text)
        if is_script or path_of(words[0].text, self._memory.folder) in self._memory.files:
            return iter((Script(words[0].text, "sh", tuple(words[1:])),))
        return unwrap(words)

    def _running(self, inner: Inner, stdin: Content) -> Iterator[str]:
        """What is told of a text that is run, besides the commands in it."""
        content = self._program_text(inner, stdin)
        if content is None:
            return
        if Origin.DOWNLOAD in content.origin:
            yield "run download"
        if isinstance(inner, Script) and self._memory.is_unpacked and _FROM_ARCHIVE.search(inner.path):
            yield "run unpacked"
        is_foreign = not isinstance(inner, Words) and inner.language != "sh"
        if (Origin.DECODED in content.origin and not content.is_known) or (
            is_foreign and runs_decoded(content.text)
        ):
            yield "run decoded"
        is_blank = content.text.strip(" " + UNKNOWN) == ""
        if isinstance(inner, Code) and is_blank and content.text and not content.origin:
            yield "run unknown"
        if isinstance(inner, StandardInput) and content.text == UNKNOWN and Origin.FILE not in content.origin:
            yield "run piped"

    def _program_text(self, inner: Inner, stdin: Content) -> Content | None:
        match inner:
            case Code(content=content):
                return content
            case Script(path=path):
                return self._memory.files.get(path_of(path, self._memory.folder), EMPTY)
            case StandardInput():
                return stdin
            case Words():
                return None

    def _follow(self, inner: Inner, stdin: Content, printed: Content) -> Content:
        match inner:
            case Words(words=words):
                return self.execute(list(words), stdin)
            case Code(content=content, language=language, arguments=arguments):
                if arguments:
                    self._memory.variables["0"] = Content(arguments[0].text, arguments[0].origin)
                inside = self._run_text(content, language, arguments[1:], stdin)
                return inside if language == "sh" else printed
            case Script(path=path, language=language, arguments=arguments):
                content = self._memory.files.get(path_of(path, self._memory.folder), EMPTY)
                return self._run_text(content, language, arguments, stdin) if content.text else printed
            case StandardInput(language=language):
                return self._run_text(stdin, language, (), EMPTY) if stdin.text else printed

    def _run_text(
        self, content: Content, language: str, arguments: Sequence[Word], stdin: Content
    ) -> Content:
        if content.text.strip(UNKNOWN + " \n") == "":
            return PRINTED
        if self._text_level >= MAX_TEXT_LEVELS or not self._reading.takes(content.text, language):
            self._reading.limits.add(Limit.DEEP)
            return PRINTED
        self._text_level += 1
        before = self._memory.arguments
        if arguments:
            self._memory.arguments = tuple(arguments)
        printed = PRINTED
        limits, folder = set(self._reading.limits), self._memory.folder
        for text in (
            [with_home(content.text)]
            if language == "sh"
            else shell_texts(content.text, language, self._give_up)
        ):
            printed = self._read(text, stdin)
        if language != "sh":
            self._memory.folder = folder
        if language != "sh" and Limit.BROKEN not in limits:
            self._reading.limits.discard(Limit.BROKEN)  # it may have been no shell's text at all
        self._memory.arguments = before
        self._text_level -= 1
        return printed if language == "sh" else PRINTED

    def finish(self) -> None:
        """What `trap` keeps for the end."""
        if len(self._deferred) > _MAX_DEFERRED:
            self._give_up()
        for inner in self._deferred[:_MAX_DEFERRED]:
            self._follow(inner, EMPTY, PRINTED)

    def _give_up(self) -> None:
        self._reading.limits.add(Limit.MANY)

    def run_text(self, content: Content) -> None:
        """A text that some program will give to a shell."""
        self._run_text(content, "sh", (), EMPTY)

    def _expanded(self, words: list[Word], stdin: Content) -> Content:
        """An alias is text, put in the place of the name."""
        name = words[0].text
        self._calling.add(name)
        rest = " ".join(f"'{word.text}'" if " " in word.text else word.text for word in words[1:])
        text = f"{self._memory.aliases[name]} {rest}"
        printed = self._run_text(Content(text), "sh", (), stdin)
        self._calling.discard(name)
        return printed

    def _called(self, words: list[Word], stdin: Content) -> Content:
        name = words[0].text
        body = self._reading.functions[name]
        if name in self._calling or len(words) < 2 or "$" not in body:
            return PRINTED
        self._calling.add(name)
        printed = self._run_text(Content(body), "sh", words[1:], stdin)
        self._calling.discard(name)
        return printed

    def _printed(self, program: str, words: list[Word], stdin: Content) -> Content:
        if program == "cat" and len(words) > 1:
            paths = [word.text for word in words[1:] if not word.text.startswith("-")]
            if paths:
                read = sum(
                    (self.file_content(path_of(p, self._memory.folder)) for p in paths[:_MAX_READ]), EMPTY
                )
                return Content(self._memory.counted(read.text), read.origin)
        if program in _QUIET and words[-1].text != "set":  # alone, it prints all variables
            return EMPTY
        content = filters.printed(program, words[1:], stdin)
        reads_secret = program in READERS and any(is_secret(word.text) for word in words[1:])
        return content.tainted(Origin.SECRET) if reads_secret else content

    def file_content(self, path: str) -> Content:
        """What is known of a file: what this line wrote there, or that it holds a secret."""
        if path in ("/dev/stdin", ""):
            return EMPTY
        if path.startswith(_SOCKETS):
            return Content(UNKNOWN, Origin.DOWNLOAD)
        if path in self._memory.files:
            return self._memory.files[path]
        return Content(UNKNOWN, Origin.FILE | (Origin.SECRET if is_secret(path) else Origin.NONE))

    def redirected(self, content: Content, redirects: Sequence[Redirect]) -> None:
        for redirect in redirects:
            if redirect.direction is not Direction.READ and not redirect.path.startswith("/dev/"):
                self._memory.files[redirect.path] = content

    def _remember(self, program: str, words: Sequence[Word], stdin: Content) -> None:
        """What later commands of the line will see: the folder, variables, files."""
        if unpacks_download(program, words, stdin, self._memory):
            self._memory.is_unpacked = True
        for path, content in writes_of(program, words, stdin):
            self._memory.files[path_of(path, self._memory.folder)] = content
        texts = [word.text for word in words]
        operands = [text for text in texts if not text.startswith("-")]
        match program:
            case "cd" | "pushd":
                folder = operands[0] if operands else "~"
                self._memory.folder = path_of(folder, self._memory.folder)
            case "set":
                given = texts[texts.index("--") + 1 :] if "--" in texts else operands
                self._memory.arguments = tuple(words_of(given))
            case "read" | "mapfile" | "readarray":
                for name in operands:
                    self._memory.variables[name] = Content(stdin.text.rstrip("\n"), stdin.origin)
            case "printf" if texts[:1] == ["-v"] and len(texts) > 2:
                self._memory.variables[texts[1]] = filters.printed(program, words[2:], EMPTY)
            case "alias":
                for text in operands:
                    name, _, value = text.partition("=")
                    self._memory.aliases[name] = value
            case "chmod" | "mv" | "cp" | "ln" if len(operands) > 1:
                self._moved(operands)

    def _moved(self, operands: Sequence[str]) -> None:
        source = self._memory.files.get(path_of(operands[0], self._memory.folder))
        if source is not None:
            self._memory.files[path_of(operands[1], self._memory.folder)] = source
