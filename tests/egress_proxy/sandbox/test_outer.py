"""The portable form: a command line that sets the sandbox up by itself, or does not run the command."""

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress_proxy.core import attach
from egress_proxy.sandbox import outer
from egress_proxy.sandbox.plan import (
    ARGS,
    CHANNEL,
    ERRORS,
    FILTER,
    LAUNCH,
    STATUS,
    SYNC,
    LaunchPlan,
    Recipe,
    encode,
)
from egress_proxy.sandbox.seccomp import Network
from tests.support import bwrap_shell, launches
from tests.support.deadline import DEFAULT_S, eventually
from tests.support.launches import GREETING, LAUNCHER, OUTER, PYTHON, SUPERVISOR

HELLO, WELCOME = b'{"attach":1}\n', b'{"attach":1,"client":'
YES, NO = b'{"attach":1,"client":"sandbox-3","port":8899}\n', b'{"attach":1,"error":"draining"}\n'
SHOW = (*PYTHON, "-c", "import os, sys; print(sys.argv[1:], sorted(os.listdir('/proc/self/fd'), key=int))")


def portable(recipe: Recipe, *command: str, kept: tuple[str, ...] = (), **variables: str) -> list[str]:
    words = recipe.on_command_line(kept, variables, HELLO, WELCOME)
    return [*PYTHON, OUTER, *words, "--", *command]


def run(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env={"PATH": os.environ["PATH"], **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=4 * DEFAULT_S,
        check=False,
    )


def assert_refused(ended: subprocess.CompletedProcess[str], why: str) -> None:
    assert ended.returncode == 125
    assert ended.stdout == ""
    assert ended.stderr.startswith("sandbox-run: ")
    assert why in ended.stderr
    assert ended.stderr.count("\n") == 1


@contextlib.contextmanager
def proxy(path: Path, answer: bytes) -> Iterator[list[bytes]]:
    """Takes one sandbox: answers its hello, greets its clients. What the hello was is in the list."""
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as attach_socket:
        attach_socket.bind(str(path))
        attach_socket.listen()

        def take() -> None:
            connection, _ = attach_socket.accept()
            with connection, contextlib.suppress(OSError):
                heard.append(connection.recv(4096))
                connection.sendall(answer)
                if answer != YES:
                    connection.shutdown(socket.SHUT_WR)
                _, descriptors, _, _ = socket.recv_fds(connection, 1, 4)
                if descriptors:
                    with socket.socket(fileno=descriptors[0]) as listener:
                        connection.send(b"K")
                        launches.greet_all_until(listener, connection)

        thread = threading.Thread(target=take)
        thread.start()
        yield heard
        thread.join(DEFAULT_S)
        assert not thread.is_alive()


# What the words become


def test_words_stand_for_descriptors_and_the_commands_own_words_do_not() -> None:
    recipe = Recipe("test", (*SHOW, LAUNCH, ERRORS, STATUS, "--"), launch=b"x")
    ended = run(portable(recipe, "@launch", "@args", "--"))
    assert ended.stdout == "['3', '-1', '-1', '--', '@launch', '@args', '--'] ['0', '1', '2', '3', '4']\n"


def test_what_the_words_stand_for_can_be_read_to_its_end() -> None:
    code = "import os, sys; print([os.fdopen(int(word), 'rb').read() for word in sys.argv[1:4]])"
    recipe = Recipe(
        "test",
        (*PYTHON, "-c", code, ARGS, LAUNCH, FILTER),
        ("--bind", "/a b", FILTER, ERRORS),
        b"L\0",
        b"F\xff",
    )
    ended = run(portable(recipe, "true"))
    assert ended.stdout == "[b'--bind\\x00/a b\\x004\\x00-1\\x00', b'L\\x00', b'F\\xff']\n"


def test_no_other_descriptor_is_inherited() -> None:
    with socket.socket() as left_open:
        words = portable(Recipe("test", SHOW), "x")
        passed = [left_open.fileno()]
        ended = subprocess.run(words, pass_fds=passed, capture_output=True, text=True, check=True)
    assert ended.stdout == "['x'] ['0', '1', '2', '3']\n"


def test_a_recipe_may_be_longer_than_a_word_of_a_command_line() -> None:
    args = tuple(f"/a/rather/long/path/{number}" for number in range(20_000))
    recipe = Recipe(
        "test", (*PYTHON, "-c", "import sys; print(len(open(int(sys.argv[1])).read()))", ARGS), args
    )
    words = portable(recipe, "true")
    assert max(map(len, words)) < 128 * 1024
    assert run(words).stdout == f"{sum(map(len, args)) + len(args)}\n"


# The environment


def test_only_named_variables_are_kept_and_before_the_start() -> None:
    """bwrap's own process is there to be read inside, with what it was started with."""
    recipe = Recipe("test", ("/bin/sh", "-c", "tr '\\0' '\\n' < /proc/$$/environ | sort"))
    words = portable(
        recipe, "sh", kept=("LANG", "LC_*"), HTTP_PROXY="http://127.0.0.1:8899", LC_ALL="C", X="a=b"
    )
    ended = run(words, LANG="C.UTF-8", LANGUAGE="de", LC_TIME="C", LC_ALL="de_DE", TOKEN="t", HTTP_PROXY="no")
    assert ended.stdout.split("\n") == [
        "HTTP_PROXY=http://127.0.0.1:8899",
        "LANG=C.UTF-8",
        "LC_ALL=C",
        "LC_TIME=C",
        "X=a=b",
        "",
    ]


# Failing closed


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "recipe: "),
        (["--", "true"], "recipe: it is cut short"),
        (["zz", "--", "true"], "recipe: non-hexadecimal"),
        ([encode([("word", "/bin/echo")]).hex(), "--"], "recipe: expected RECIPE_HEX"),
        ([encode([("word", "echo")]).hex(), "--", "true"], "recipe: expected RECIPE_HEX"),
        ([encode([("word", "/bin/echo"), ("new", "")]).hex(), "--", "true"], "recipe: unknown entry new"),
        ([encode([("word", "/no-such")]).hex(), "--", "true"], "start: /no-such: No such file or directory"),
        (
            [encode([("word", "/bin/echo"), ("word", CHANNEL)]).hex(), "--", "true"],
            "descriptors: there is a channel but no attach socket",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_recipe_that_cannot_be_carried_out_starts_nothing(words: list[str], why: str) -> None:
    assert_refused(run([*PYTHON, OUTER, *words]), why)


def test_without_the_proxy_nothing_starts(tmp_path: Path) -> None:
    recipe = Recipe("test", ("/bin/echo", CHANNEL), attach=str(tmp_path / "no.sock"))
    assert_refused(run(portable(recipe, "true")), "attach socket: No such file or directory")
    recipe = Recipe("test", ("/bin/echo", CHANNEL), attach=str(tmp_path / ("x" * 120)))
    assert_refused(run(portable(recipe, "true")), "attach socket: AF_UNIX path too long")


@pytest.mark.parametrize("answer", [NO, b"", YES[:-1], b"x" * 5000, b" " + YES])
def test_a_proxy_that_does_not_welcome_starts_nothing(answer: bytes, tmp_path: Path) -> None:
    recipe = Recipe("test", ("/bin/echo", CHANNEL), attach=str(tmp_path / "a.sock"))
    with proxy(tmp_path / "a.sock", answer) as heard:
        assert_refused(run(portable(recipe, "true")), "attach socket: ")
    assert heard == [HELLO]


def test_a_proxy_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "a.sock"))
        silent.listen()
        recipe = Recipe("test", ("/bin/echo", CHANNEL), attach=str(tmp_path / "a.sock"), answer_ms=50)
        assert_refused(run(portable(recipe, "true")), "attach socket: timed out")


def test_an_answer_without_an_expected_beginning_is_no_welcome(tmp_path: Path) -> None:
    recipe = Recipe("test", ("/bin/echo", CHANNEL), attach=str(tmp_path / "a.sock"))
    words = [*PYTHON, OUTER, *recipe.on_command_line((), {}, HELLO, b""), "--", "true"]
    with proxy(tmp_path / "a.sock", YES):
        assert_refused(run(words), "the proxy takes no sandbox")


def test_nothing_in_the_working_folder_is_imported(tmp_path: Path) -> None:
    for name in ("launcher", "ctypes", "struct", "os", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    words = portable(Recipe("test", ("/bin/echo",)), "true")
    subprocess.run(words, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, check=True)
    assert not (tmp_path / "ran").exists()


def test_the_limit_of_a_line_is_the_attach_protocols() -> None:
    assert outer.LINE_LIMIT == attach.LINE_LIMIT


# The whole way


CONNECT = "import socket; print(socket.create_connection(('127.0.0.1', 8899)).recv(99), flush=True)"


def test_a_command_under_bwrap_reaches_the_proxy_by_its_command_line_alone(tmp_path: Path) -> None:
    if reason := bwrap_shell.unavailable():
        pytest.skip(reason)
    plan = LaunchPlan(
        port=8899, landlock=launches.read_only(), program=launches.program(Network.OWN_NAMESPACE)
    )
    binds = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-user", "--unshare-net")
    recipe = Recipe(
        "bwrap",
        ("/usr/bin/bwrap", "--args", ARGS, "--", *PYTHON, LAUNCHER, "inner", LAUNCH, CHANNEL, ERRORS, "--"),
        (*binds, "--unshare-pid", "--die-with-parent", "--sync-fd", SYNC),
        plan.encode(),
        attach=str(tmp_path / "a.sock"),
    )
    with proxy(tmp_path / "a.sock", YES):
        ended = run(portable(recipe, *PYTHON, "-c", CONNECT))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{GREETING!r}\n", "")


def test_a_command_under_the_supervisor_does_too(tmp_path: Path) -> None:
    plan = LaunchPlan(port=8899, landlock=launches.read_only(), program=launches.program(Network.SUPERVISED))
    words = (*PYTHON, SUPERVISOR, LAUNCH, CHANNEL, ERRORS, "--")
    recipe = Recipe("landlock", words, launch=plan.encode(), attach=str(tmp_path / "a.sock"))
    with proxy(tmp_path / "a.sock", YES):
        ended = run(portable(recipe, *PYTHON, "-c", CONNECT))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{GREETING!r}\n", "")


def test_it_ends_with_its_parent() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    words = portable(Recipe("test", (*PYTHON, "-c", code)), "x")
    shell = ["sh", "-c", '"$@" & wait', "sh"]
    with subprocess.Popen([*shell, *words], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        eventually(lambda: launches.is_gone(number), what="the process to end")


def test_a_file_on_stdin_is_given_as_a_copy_from_where_it_stands(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"read already\n" + b"the rest\n" * 100_000)
    victim.chmod(0o644)
    script = """
import os
os.fchmod(0, 0o600)
open('/proc/self/fd/0', 'r+b', 0).write(b'x')
print(len(os.read(0, 1 << 22)))
"""
    with victim.open("rb", buffering=0) as stdin:
        stdin.read(13)
        words = portable(Recipe("x", (*PYTHON, "-c", script)), "x")
        done = subprocess.run(words, env={}, stdin=stdin, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("900000\n", "")
    assert victim.read_bytes().startswith(b"read already\nthe rest\n")
    assert victim.stat().st_mode & 0o777 == 0o644


def test_a_file_too_large_to_copy_is_refused_with_what_helps(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(outer.STDIN_LIMIT + 1)
    with large.open("rb") as stdin:
        words = portable(Recipe("x", SHOW), "x")
        done = subprocess.run(words, env={}, stdin=stdin, capture_output=True, text=True, check=False)
    assert_refused(done, "pipe it, as in cat FILE | COMMAND")


@pytest.mark.parametrize("stream", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_closed_stream_is_nobody_elses_number(stream: str, tmp_path: Path) -> None:
    kept = tmp_path / "said"
    look = f"""
import os
said = chr(10).join(os.readlink(f'/proc/self/fd/{{n}}') for n in range(3))
open({str(kept)!r}, 'w').write(said)
"""
    words = portable(Recipe("x", (*PYTHON, "-c", look)), "x")
    script = f'exec "$@" {stream}'
    subprocess.run(("/bin/sh", "-c", script, "sh", *words), stdin=subprocess.DEVNULL, check=True)
    places = kept.read_text().splitlines()
    closed = {int(word[0]) for word in stream.split()}
    assert [place == "/dev/null" for place in places] == [n in closed or n == 0 for n in range(3)]
