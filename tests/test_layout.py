"""The house rules that no linter knows: sizes, names, who may call what. Rings: pyproject.toml.

A rule is a function from one product module to its findings. A place that must break one stands in
a table with its reason; an entry that is no longer needed fails, so the tables can only shrink.
"""

import ast
import contextlib
import functools
import os
import re
import statistics
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("egress_proxy", "control_api")

# A size must stay under its limit: what fits on a few screens is read whole, and gets reviewed.
FILE_LINES = 300
CORE_FILE_LINES = 200
FUNCTION_LINES = 40
MEDIAN_FUNCTION_LINES = 10

# Place ("path" or "path:Class.function") -> the limit there, and why.
LONGER: dict[str, tuple[int, str]] = {}
# Path of a module with behaviour but without a test file of its own -> why.
UNTESTED: dict[str, str] = {}

BANNED_WORDS = re.compile(r"(base|common|data|handler|helper|info|manager|misc|util)s?")
BANNED_ALONE = re.compile(r"process|runtime|state")  # each needs a noun: whose state?
# Names that are not ours to choose: asyncio's callbacks, and what README and settings call things.
VOCABULARY = re.compile(r"base_url|data_port|data_received|extra_info")

SECRET_TYPE = "egress_proxy/vault/secret.py"
MAY_REVEAL = {"egress_proxy/proxy/forward.py", "egress_proxy/vault/injection.py"}
MAY_USE_ENVIRON = {
    "egress_proxy/cli/hardening.py",  # takes it at start, as a mapping for settings, and wipes it
    "egress_proxy/sandbox/environment.py",
    "egress_proxy/sandbox/outer.py",  # stands alone, and takes the named few along
    "egress_proxy/agent/variables.py",
}
# The outermost loops: each ends one command or one client, and goes on with the others.
MAY_CATCH_ALL = {
    "egress_proxy/cli/main.py",
    "egress_proxy/cli/service.py",
    "egress_proxy/proxy/arrivals.py",
    "egress_proxy/proxy/exchange.py",
    "egress_proxy/proxy/kept.py",
    "egress_proxy/proxy/listener.py",
    "egress_proxy/proxy/tunnel.py",
}
# A race that the first end decides, where a TaskGroup would wait for all: cancels, awaits the rest.
MAY_START_TASKS = {"egress_proxy/proxy/dialer.py"}

ENVIRON = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
SPAWN = {"create_task", "ensure_future"}
ON_EVERY_MACHINE = re.compile(r"/(app|home|mnt|opt|root|src|srv|tmp|usr|usr/local|var/tmp)?")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """A product module; ``path`` is relative to the repository, with slashes."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)


@functools.cache
def product() -> tuple[Module, ...]:
    files = sorted(file for tree in PRODUCT for file in (ROOT / tree).rglob("*.py"))
    return tuple(Module(file.relative_to(ROOT).as_posix(), file.read_text()) for file in files)


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Every function below the node with its dotted name, nested ones too."""
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{prefix}{child.name}."
        if isinstance(child, Function):
            yield prefix + child.name, child
        yield from functions(child, inner)


def lines_of(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def sizes(module: Module) -> Iterator[tuple[str, int, int]]:
    """Place, its lines, and the limit that holds where the table says nothing."""
    core = module.path.startswith("egress_proxy/core/")
    yield module.path, len(module.text.splitlines()), CORE_FILE_LINES if core else FILE_LINES
    for name, node in functions(module.tree):
        yield f"{module.path}:{name}", lines_of(node), FUNCTION_LINES


def oversized(module: Module) -> Iterator[str]:
    for place, lines, usual in sizes(module):
        limit = LONGER[place][0] if place in LONGER else usual
        if lines >= limit:
            yield f"{place} has {lines} lines, the limit is under {limit}"


def undocumented(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"{module.path} does not say what lives there, what must not, and where to look next"


def badly_named(module: Module) -> Iterator[str]:
    names = module.path.removesuffix(".py").split("/")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
    for name in names:
        words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", VOCABULARY.sub("", name))
        words = [word.lower() for word in words]
        alone = len(words) == 1 and BANNED_ALONE.fullmatch(words[0])
        if alone or any(map(BANNED_WORDS.fullmatch, words)):
            yield f"{module.path}: the name {name} says too little"


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when the module is imported: everything but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function):
            yield child
            yield from _at_import(child)


def importing_packages(module: Module) -> Iterator[str]:
    if module.path.endswith("/__init__.py"):
        for node in _at_import(module.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield f"{module.path}:{node.lineno} imports: one part would cost all of the folder"


def revealing(module: Module, allowed: Collection[str] = MAY_REVEAL) -> Iterator[str]:
    for node in ast.walk(module.tree) if module.path not in {SECRET_TYPE, *allowed} else ():
        if isinstance(node, ast.Attribute) and node.attr == "reveal":
            yield f"{module.path}:{node.lineno} reveals a secret"


def reading_environ(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree) if module.path not in MAY_USE_ENVIRON else ():
        match node:
            case ast.Attribute(value=ast.Name("os"), attr=name, lineno=line) if name in ENVIRON:
                yield f"{module.path}:{line} uses os.{name}: settings are read once, at start"
            case ast.ImportFrom("os", names, lineno=line) if ENVIRON & {n.name for n in names}:
                yield f"{module.path}:{line} imports it from os: settings are read once, at start"


def _catches_all(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(map(_catches_all, kind.elts))
    return kind is None or ast.unparse(kind) in {"Exception", "BaseException"}


def catching_all(module: Module) -> Iterator[str]:
    """A clause that ends in a bare ``raise`` only cleans up and hides nothing."""
    for node in ast.walk(module.tree) if module.path not in MAY_CATCH_ALL else ():
        match node:
            case ast.ExceptHandler(body=[*_, ast.Raise(exc=None)]):
                continue
            case ast.ExceptHandler(kind, lineno=line) if _catches_all(kind):
                yield f"{module.path}:{line} catches everything"
            case ast.Call(ast.Attribute(attr="suppress") | ast.Name("suppress"), kinds, lineno=line):
                if any(map(_catches_all, kinds)):
                    yield f"{module.path}:{line} suppresses everything"


def ownerless_tasks(module: Module) -> Iterator[str]:
    """The linter bans asyncio's own; a loop's methods it cannot tell from a TaskGroup's."""
    for node in ast.walk(module.tree) if module.path not in MAY_START_TASKS else ():
        match node:
            case ast.Attribute(value=owner, attr=name, lineno=line) if name in SPAWN:
                if re.search(r"(asyncio|loop|loop\(\))$", ast.unparse(owner)):
                    yield f"{module.path}:{line} starts a task that nobody awaits"
            case ast.ImportFrom("asyncio", names, lineno=line) if SPAWN & {n.name for n in names}:
                yield f"{module.path}:{line} imports {names[0].name}: nobody would await the task"


def _behaves(node: ast.AST) -> bool:
    """Whether a test could fail: there is a function, and not only the shapes of a Protocol."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return True
        case ast.ClassDef(bases=[ast.Name("Protocol"), *_]):
            return False
        case _:
            return any(map(_behaves, ast.iter_child_nodes(node)))


def untested(module: Module, allowed: Collection[str] = UNTESTED) -> Iterator[str]:
    folder, _, name = module.path.rpartition("/")
    mirror = f"tests/{folder}/test_{name}"
    if module.path not in allowed and _behaves(module.tree) and not (ROOT / mirror).is_file():
        yield f"{module.path} has no {mirror}"


Rule = Callable[[Module], Iterator[str]]
RULES: dict[str, Rule] = {
    "files and functions are short": oversized,
    "every module has a docstring": undocumented,
    "names say something": badly_named,
    "packages import nothing": importing_packages,
    "secrets are revealed in one place": revealing,
    "the environment is read by settings alone": reading_environ,
    "only outermost loops catch everything": catching_all,
    "every task has an owner": ownerless_tasks,
    "every module has its test file": untested,
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_house_rule(rule: Rule) -> None:
    findings = [finding for module in product() for finding in rule(module)]
    assert not findings, "\n".join(findings)


def test_at_most_one_file_reveals_secrets() -> None:
    assert len([module.path for module in product() if any(revealing(module, ()))]) <= 1


def test_the_median_function_is_short() -> None:
    lengths = [lines_of(node) for module in product() for _, node in functions(module.tree)]
    assert not lengths or statistics.median(lengths) < MEDIAN_FUNCTION_LINES


def test_every_exception_is_still_needed() -> None:
    measured = (size for module in product() for size in sizes(module))
    too_long = {place for place, lines, usual in measured if lines >= usual}
    assert LONGER.keys() <= too_long
    assert UNTESTED.keys() <= {module.path for module in product() if any(untested(module, ()))}


def repository_texts() -> Iterator[tuple[str, str]]:
    """Path and text of what is ours: no history, no environments, no caches, no binaries."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name == ".ci" or name[0] not in "._"]
        for file in (Path(folder, name) for name in files if name != ".git"):
            with contextlib.suppress(UnicodeDecodeError):
                yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


def test_no_text_names_a_path_of_this_machine() -> None:
    here = {ROOT, ROOT.parent, Path(sys.prefix), Path(sys.base_prefix), Path.home()}
    own = [re.escape(str(path)) for path in here if not ON_EVERY_MACHINE.fullmatch(str(path))]
    named = re.compile(rf"(?<![\w.~-])({'|'.join(own)})(?![\w-])")
    assert own == [] or not [path for path, text in repository_texts() if named.search(text)]


BROKEN: list[tuple[Rule, str, str]] = [
    (oversized, "egress_proxy/core/x.py", "\n" * CORE_FILE_LINES),
    (oversized, "control_api/x.py", "\n" * FILE_LINES),
    (oversized, "control_api/x.py", "class A:\n  def f():\n" + "    g()\n" * (FUNCTION_LINES - 1)),
    (undocumented, "control_api/x.py", "import re"),
    (badly_named, "control_api/http_utils.py", ""),
    (badly_named, "egress_proxy/common/x.py", ""),
    (badly_named, "control_api/x.py", "class HTTPHandler: ..."),
    (badly_named, "control_api/x.py", "def process(): ..."),
    (badly_named, "control_api/x.py", "async def get_tunnel_info(): ..."),
    (importing_packages, "control_api/__init__.py", "if True:\n  from control_api import auth"),
    (revealing, "egress_proxy/proxy/dialer.py", "secret.reveal()"),
    (revealing, "egress_proxy/proxy/dialer.py", "f(secret.reveal)"),
    (reading_environ, "control_api/auth.py", "import os\nos.environ['A']"),
    (reading_environ, "control_api/auth.py", "from os import getenv"),
    (catching_all, "control_api/x.py", "try: f()\nexcept Exception: pass"),
    (catching_all, "control_api/x.py", "try: f()\nexcept (OSError, BaseException): pass"),
    (catching_all, "control_api/x.py", "try: f()\nexcept: pass"),
    (catching_all, "control_api/x.py", "with contextlib.suppress(Exception): f()"),
    (ownerless_tasks, "control_api/x.py", "asyncio.create_task(f())"),
    (ownerless_tasks, "control_api/x.py", "self._loop.create_task(f())"),
    (ownerless_tasks, "control_api/x.py", "asyncio.get_running_loop().create_task(f())"),
    (ownerless_tasks, "control_api/x.py", "from asyncio import ensure_future"),
    (untested, "control_api/no_such.py", "def f(): ..."),
]
SOUND = """
async def data_received(self):
    try:
        group.create_task(f())
    except BaseException:
        close()
        raise
"""


@pytest.mark.parametrize(("rule", "path", "source"), BROKEN)
def test_a_broken_rule_is_found(rule: Rule, path: str, source: str) -> None:
    assert len(list(rule(Module(path, source)))) == 1


@pytest.mark.parametrize("rule", [badly_named, catching_all, ownerless_tasks, oversized])
def test_sound_code_passes(rule: Rule) -> None:
    assert not list(rule(Module("control_api/x.py", SOUND)))
