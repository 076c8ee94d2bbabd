"""The portable form: carries out a recipe from its own command line, for hosts that take nothing but an argv.

Run as `[python, -I, -S, THIS FILE, RECIPE_HEX…, --, COMMAND…]`. Confines nothing itself: connects to the
proxy, opens what the recipe's words stand for, leaves all of the environment behind that is not named, and
becomes bwrap or the supervisor. Failures: one line `sandbox-run: …` and 125, and the command was not run.
Next: plan.py (Recipe), launcher.py (runs inside), descriptors.py (the same for callers in a process of ours).
"""

import _signal  # type: ignore[import-not-found]
import _socket
import errno
import os
import sys

TYPE_CHECKING = False  # typing itself is milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable

if __package__:
    from egress_proxy.sandbox import launcher
else:  # run as a script, isolated: the path holds the standard library alone
    sys.path.append(os.path.dirname(os.path.realpath(__file__)))
    import launcher  # type: ignore[import-not-found,no-redef]

LINE_LIMIT = 4096  # core/attach.py
S_IFMT, S_IFREG = 0o170000, 0o100000  # inode(7)
STDIN_LIMIT = 256 << 20  # bytes: it is memory
LONG_WORDS, LONG_BYTES = 1_000, 65_536  # plan.py


class Instructions:
    """The entries of plan.py's Recipe."""

    def __init__(self, encoded: bytes) -> None:
        self.words: list[bytes] = []
        self.args: list[bytes] = []
        self.long_words: list[bytes] = []
        self.contents = {b"@launch": b"", b"@filter": b""}
        self.roots: list[bytes] = []
        self.hidden: list[bytes] = []
        self.shown: list[bytes] = []
        self.kept: list[bytes] = []
        self.withheld: set[bytes] = set()
        self.variables: dict[bytes, bytes] = {}
        self.attach: bytes | None = None
        self.hello = b""
        self.welcome = b""
        self.answer_ms = 0
        for key, value in launcher.entries(encoded):
            self._take(key, value)

    def _take(self, key: bytes, value: bytes) -> None:
        match key:
            case b"word":
                self.words.append(value)
            case b"long":
                self.long_words.append(value)
            case b"arg":
                self.args.append(value)
            case b"launch":
                self.contents[b"@launch"] = bytes.fromhex(value.decode())
            case b"program":
                self.contents[b"@filter"] = bytes.fromhex(value.decode())
            case b"root":
                self.roots.append(value)
            case b"hidden":
                self.hidden.append(value)
            case b"shown":
                self.shown.append(value)
            case _:
                self._take_of_environment(key, value)

    def _take_of_environment(self, key: bytes, value: bytes) -> None:
        match key:
            case b"keep":
                self.kept.append(value)
            case b"withhold":
                self.withheld.add(value)
            case b"set":
                name, value = value.split(b"=", 1)
                self.variables[name] = value
            case b"attach":
                self.attach = value
            case b"hello":
                self.hello = bytes.fromhex(value.decode())
            case b"welcome":
                self.welcome = bytes.fromhex(value.decode())
            case b"answer_ms":
                self.answer_ms = int(value)
            case _:
                raise ValueError(f"unknown entry {os.fsdecode(key)}")


def attach(path: bytes, recipe: Instructions) -> _socket.socket:
    """A connection to the proxy on which it has agreed to take a sandbox."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.settimeout(recipe.answer_ms / 1000)
    connection.connect(path)
    connection.send(recipe.hello)
    line = b""
    while not line.endswith(b"\n") and len(line) < LINE_LIMIT:
        received = connection.recv(LINE_LIMIT - len(line))
        if not received:
            break
        line += received
    if not (recipe.welcome and line.startswith(recipe.welcome) and line.endswith(b"\n")):
        raise ConnectionError(f"the proxy takes no sandbox: {line.decode('utf-8', 'replace').strip()}")
    connection.settimeout(None)
    return connection


def check_root(root: bytes) -> None:
    """bwrap follows a link that stands there by now. Between this and its start lie milliseconds."""
    if os.path.realpath(root) != root or not os.path.isdir(root):
        raise FileNotFoundError(errno.ENOENT, "it is no longer the folder that was named", root)


def settle_streams() -> None:
    """A stream that is closed would be the number of something of ours. A file on stdin is given as a copy:
    it could be opened anew by /proc/self/fd/0, to write, or its mode be changed."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free: this one.
            os.set_inheritable(os.open("/dev/null", os.O_RDWR), True)
    status = os.fstat(0)
    if status.st_mode & S_IFMT == S_IFREG:
        copy_stdin(status.st_size)


def copy_stdin(size: int) -> None:
    start = os.lseek(0, 0, os.SEEK_CUR)
    if size - start > STDIN_LIMIT:
        raise OSError(errno.EFBIG, "a file this large is not copied: pipe it, as in cat FILE | COMMAND")
    copy = os.memfd_create("stdin", os.MFD_CLOEXEC)
    while os.sendfile(copy, 0, None, STDIN_LIMIT):
        pass
    os.lseek(copy, 0, os.SEEK_SET)
    os.dup2(copy, 0)
    os.close(copy)


def memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as stream:
        stream.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def open_words(recipe: Instructions, connection: _socket.socket | None) -> dict[bytes, int]:
    """The descriptors that the recipe's words stand for. Nobody reads errors or status in this form."""
    numbers = {b"@errors": -1, b"@status": -1}
    if connection is not None:
        # Two, since bwrap closes its --sync-fd in what it starts.
        numbers |= {b"@channel": connection.fileno(), b"@sync": os.dup(connection.fileno())}
    numbers |= {word: memory_file(content) for word, content in recipe.contents.items()}
    args = b"".join(word + b"\0" for word in numbered(recipe.args, numbers))
    return {**numbers, b"@args": memory_file(args)}


def numbered(words: list[bytes], numbers: dict[bytes, int]) -> list[bytes]:
    if b"@channel" in words and b"@channel" not in numbers:
        raise ValueError("there is a channel but no attach socket")
    return [b"%d" % numbers[word] if word in numbers else word for word in words]


def settle_working_folder(recipe: Instructions) -> None:
    """The command starts where it is spawned; where the sandbox does not show that, in the first root."""
    if not recipe.hidden:
        return
    try:
        here = os.getcwdb()
    except OSError:  # it is gone
        here = b""
    if not here or (is_in(here, recipe.hidden) and not is_in(here, (*recipe.roots, *recipe.shown))):
        there = recipe.roots[0] if recipe.roots else b"/"
        text = b"the working folder %s is not shown in the sandbox; the command starts in %s"
        os.write(2, b"egress-proxy: " + (text % (here, there)).replace(b"\n", b"?") + b"\n")
        here = there
    recipe.args += [b"--chdir", here]


def is_in(path: bytes, folders: "Iterable[bytes]") -> bool:
    return any(path == folder or path.startswith(folder.rstrip(b"/") + b"/") for folder in folders)


def environment(recipe: Instructions) -> dict[bytes, bytes]:
    """Made before bwrap's start: what bwrap is started with stays readable inside, in /proc/1/environ."""
    names = {name for name in recipe.kept if not name.endswith(b"*")}
    prefixes = tuple(name[:-1] for name in recipe.kept if name.endswith(b"*"))
    kept = {
        name: value
        for name, value in os.environb.items()
        if name in names or (name.startswith(prefixes) and not recipe.withheld & {name, *name.split(b"_")})
    }
    return {**kept, **recipe.variables}


def is_long(command: list[bytes]) -> bool:
    """bwrap takes 9,000 words in all, and the kernel some 2 MB with bwrap's own among them."""
    return len(command) > LONG_WORDS or sum(len(word) + 1 for word in command) > LONG_BYTES


def main() -> None:
    sys.excepthook = report = launcher.Report(-1)
    report.step = "standard input"
    settle_streams()
    report.step = "recipe"
    dashes = sys.argv.index("--")
    recipe = Instructions(bytes.fromhex("".join(sys.argv[1:dashes])))
    command = [os.fsencode(word) for word in sys.argv[dashes + 1 :]]
    if not command or not recipe.words[0].startswith(b"/"):  # never by PATH, which may lead into a root
        raise ValueError("expected RECIPE_HEX -- COMMAND, and a recipe that begins with an absolute path")
    report.step = "parent"
    launcher.die_with(os.getppid(), _signal.SIGKILL)  # bwrap asks for the same, later on
    report.step = "writable root"
    for root in recipe.roots:
        check_root(root)
    report.step = "attach socket"
    connection = None if recipe.attach is None else attach(recipe.attach, recipe)
    report.step = "working folder"
    settle_working_folder(recipe)
    report.step = "descriptors"
    if recipe.long_words and is_long(command):
        recipe.contents[b"@command"] = b"".join(word + b"\0" for word in command)
        recipe.words, command = recipe.long_words, []
    numbers = open_words(recipe, connection)
    words = numbered(recipe.words, numbers)
    passed = {numbers[word] for word in (*recipe.words, *recipe.args) if word in numbers} - {-1}
    launcher.close_others(*passed)
    for number in passed:
        os.set_inheritable(number, True)
    report.step = "start"
    os.execve(words[0], [*words, *command], environment(recipe))  # noqa: S606  no shell is the point


if __name__ == "__main__":
    main()
