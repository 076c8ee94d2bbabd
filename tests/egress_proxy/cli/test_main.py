"""The program as a user starts it: exit codes, one `error: ` line for a bad setting, no secret anywhere."""

import base64
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from egress_proxy.cli.arguments import SUMMARIES
from tests.egress_proxy.cli.command import DROP_IN, MODULE, PROGRAM, ROOT, Ended, environment, run, service
from tests.egress_proxy.cli.many_starts import Start, run_all

SECRET = "sk-CANARY-123"
SECRETS = {
    "KEY": f"Bearer {SECRET}",
    "TOK": SECRET,
    "EMPTY": "",
    "LINE": f"{SECRET}\n",
    "HEADER": f"{SECRET}\r\nX: 1",
    "LETTER": f"{SECRET}é",
}
LISTED = ["--allow", "a.example"]
RULE = ["--inject-host", "a.example", "--inject-secret-env", "KEY"]


@dataclass(frozen=True)
class Bad:
    """A way to start `serve` that must fail; ``words`` must stand in the one line."""

    words: str
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    file: str | None = None


BAD = [
    # flags
    Bad("nothing may be reached"),
    Bad("nothing may be reached", ["--deny", "a.example"]),
    Bad("unknown flag --alow, did you mean --allow?", ["--alow", "a.example"]),
    Bad("unknown flag --allo", ["--allo", "a.example"]),
    Bad("expected one argument", ["--allow"]),
    Bad("one argument too many", [*LISTED, "stray"]),
    Bad("not allowed with argument", [*LISTED, "-q", "-v"]),
    Bad("invalid entry 'a,b': one entry holds one host", ["--allow", "a,b"]),
    Bad("--allow holds a line end", ["--allow", "a\nb"]),
    Bad("invalid entry '*'", ["--allow", "*"]),
    Bad("invalid entry '*.com'", ["--allow", "*.com"]),
    Bad("--allow-shared '*.github.io'", ["--allow", "*.github.io"]),
    Bad("invalid entry 'https://a.example'", ["--allow", "https://a.example"]),
    Bad("invalid entry 'a:70000'", ["--allow", "a:70000"]),
    Bad("(--allow-private)", ["--allow-private", "*"]),
    Bad("(--deny)", ["--deny", "a b", *LISTED]),
    Bad("write", ["--allow", "bücher.example"]),
    Bad("--bind must be ADDRESS:PORT", [*LISTED, "--bind", "8899"]),
    Bad("--bind must be ADDRESS:PORT", [*LISTED, "--bind", ":0"]),
    Bad("--bind must be ADDRESS:PORT", [*LISTED, "--bind", "127.0.0.1:65536"]),
    Bad("--bind is not loopback", [*LISTED, "--bind", "0.0.0.0:0"]),
    Bad("--dangerously-bind-any", [*LISTED, "--bind", "0.0.0.0:0", "--client-token-env", "TOK"]),
    Bad("--connect-timeout must be a number of seconds", [*LISTED, "--connect-timeout", "0"]),
    Bad("--connect-timeout must be a number of seconds", [*LISTED, "--connect-timeout", "nan"]),
    Bad("--connect-timeout must be a number of seconds", [*LISTED, "--connect-timeout", "inf"]),
    Bad("--connect-timeout must be a number of seconds", [*LISTED, "--connect-timeout=-1"]),
    Bad("--connect-timeout must be a number of seconds", [*LISTED, "--connect-timeout", "ten"]),
    Bad("--hold-timeout must be a number of seconds", [*LISTED, "--hold-timeout", "0"]),
    Bad("--control-port must be a port", [*LISTED, "--control-port", "65536"]),
    Bad("env:NOPE is not set", [*LISTED, "--control-token-env", "NOPE"]),
    Bad("env:EMPTY is empty", [*LISTED, "--control-token-env", "EMPTY"]),
    Bad("env:LINE holds a line end", [*LISTED, "--control-token-env", "LINE"]),
    Bad("env:LETTER holds a character that is not ASCII", [*LISTED, "--control-token-env", "LETTER"]),
    Bad("takes the name of a variable", [*LISTED, "--control-token-env", SECRET]),
    Bad("env:NOPE is not set", [*LISTED, "--client-token-env", "NOPE"]),
    Bad(
        "must differ from the token of", [*LISTED, "--client-token-env", "TOK", "--control-token-env", "TOK"]
    ),
    Bad("--inject-host needs --inject-secret-env too", ["--inject-host", "a.example"]),
    Bad("--inject-secret-env needs --inject-host too", ["--inject-secret-env", "KEY"]),
    Bad("env:EMPTY is empty", [*RULE[:3], "EMPTY"]),
    Bad("env:LINE holds a line end", [*RULE[:3], "LINE"]),
    Bad("env:HEADER holds a line end", [*RULE[:3], "HEADER"]),
    Bad("takes the name of a variable", [*RULE[:3], SECRET]),
    Bad("--inject-host must be one host", ["--inject-host", "a.example:80", *RULE[2:]]),
    Bad("--inject-host must be one host", ["--inject-host", "*.a.example", *RULE[2:]]),
    Bad("--inject-scheme may be http to a loopback host only", [*RULE, "--inject-scheme", "http"]),
    Bad("--inject-scheme must be https or http", [*RULE, "--inject-scheme", "ftp"]),
    Bad("--inject-port must be a port", [*RULE, "--inject-port", "0"]),
    Bad("--inject-header cannot be used", [*RULE, "--inject-header", "Host"]),
    Bad("--inject-header holds a line end", [*RULE, "--inject-header", "X\r\nY"]),
    Bad("--record-requests needs an inject rule", [*LISTED, "--record-requests", "r.jsonl"]),
    Bad("--resolver must be an address", [*LISTED, "--resolver", "dns.example"]),
    Bad("--relay must be epoll or loop", [*LISTED, "--relay", "select"]),
    Bad("--listen-unix is longer than", [*LISTED, "--listen-unix", "/" + "a" * 200]),
    Bad("--on-miss must be deny or hold", [*LISTED, "--on-miss", "ask"]),
    Bad("not available in this version", [*LISTED, "--on-miss", "hold"]),
    Bad("--upstream-proxy is not available in this version", [*LISTED, "--upstream-proxy", "http://p:1"]),
    Bad("--attach is longer than", [*LISTED, "--attach", "/" + "a" * 200]),
    Bad("the settings file absent.toml does not exist", [*LISTED, "--config", "absent.toml"]),
    Bad("unreadable: Is a directory", [*LISTED, "--config", "/"]),
    # variables
    Bad("EGRESS_BIND must be ADDRESS:PORT", LISTED, {"EGRESS_BIND": "nonsense"}),
    Bad("EGRESS_ALLOW must be JSON", [], {"EGRESS_ALLOW": "a.example"}),
    Bad("EGRESS_ALLOW: allow[0] must be a host", [], {"EGRESS_ALLOW": "[1]"}),
    Bad("invalid entry 'a,b'", [], {"EGRESS_ALLOW": '["a,b"]'}),
    Bad("EGRESS_LIMITS__TUNNELS must be a whole number", LISTED, {"EGRESS_LIMITS__TUNNELS": "many"}),
    Bad("EGRESS_LIMITS__TUNELS sets limits.tunels", LISTED, {"EGRESS_LIMITS__TUNELS": "1"}),
    Bad("did you mean EGRESS_LIMITS__TUNNELS?", LISTED, {"EGRESS_LIMTS__TUNNELS": "1"}),
    Bad("EGRESS_TLS__INTERCEPT is not available", LISTED, {"EGRESS_TLS__INTERCEPT": "true"}),
    Bad("EGRESS_CONTROL__TOKEN cannot be used", LISTED, {"EGRESS_CONTROL__TOKEN": SECRET}),
    Bad("the settings file absent.toml does not exist", LISTED, {"EGRESS_CONFIG": "absent.toml"}),
    Bad(
        "STEERABLE_WEB_ALLOWED_DOMAINS: invalid entry",
        [],
        {"STEERABLE_WEB_ALLOWED_DOMAINS": "a.example,co.uk"},
    ),
    # the file
    Bad(":2: unknown key 'tunels'; did you mean 'tunnels' in [limits]?", LISTED, file="\ntunels = 1\n"),
    Bad(
        ":2: unknown key 'tunels' in [limits]; did you mean 'tunnels'?", LISTED, file="[limits]\ntunels = 1\n"
    ),
    Bad(":2: unknown key 'bind' in [tls]; bind belongs above", LISTED, file="[tls]\nbind = '127.0.0.1:1'\n"),
    Bad(":3: not valid TOML", LISTED, file=f"\n\ntoken = {SECRET}\n"),
    Bad(":1: not UTF-8 text", LISTED, file="a = '\udcff'\n"),
    Bad("bind must be a text of one line (", LISTED, file="bind = 5\n"),
    Bad("connect_timeout must be a number of seconds", LISTED, file="connect_timeout = true\n"),
    Bad("connect_timeout must be a number of seconds", LISTED, file="connect_timeout = '10'\n"),
    Bad("limits.head_bytes must be a whole number", LISTED, file="[limits]\nhead_bytes = 0.5\n"),
    Bad("control must be a table", LISTED, file=f"control = '{SECRET}'\n"),
    Bad("control.token cannot be used", LISTED, file=f"[control]\ntoken = '{SECRET}'\n"),
    Bad("client_token cannot be used", LISTED, file=f"client_token = 'token:{SECRET}'\n"),
    Bad(
        "client[0].name cannot be anonymous",
        LISTED,
        file="[[client]]\nname = 'anonymous'\ntoken = 'env:TOK'\n",
    ),
    Bad("client[1].name is taken", LISTED, file="[[client]]\nname = 'a'\ntoken = 'env:TOK'\n" * 2),
    Bad("allow[0].client names no [[client]]", file="[[allow]]\nhost = 'a'\nclient = 'b'\n"),
    Bad("inject[0] has no host", file="[[inject]]\nname = 'a'\n"),
    Bad("inject[0].secret is missing", file="[[inject]]\nname = 'a'\nhost = 'a'\n"),
    Bad("inject[0].secret cannot be used", file="[[inject]]\nname='a'\nhost='a'\nsecret='command:[x]'\n"),
    Bad(
        "inject[0].format cannot be used",
        file=f"[[inject]]\nname='a'\nhost='a'\nsecret='env:TOK'\nformat='Bearer {SECRET}'\n",
    ),
    Bad(
        "inject[0].placeholder is not available in this version",
        file="[[inject]]\nname='a'\nhost='a'\nsecret='env:TOK'\nplaceholder='x'\n",
    ),
    Bad(
        "inject[0].requests_per_minute is not available in this version",
        file="[[inject]]\nname='a'\nhost='a'\nsecret='env:TOK'\nrequests_per_minute=5\n",
    ),
    Bad("is the port of bind", LISTED, file="bind='127.0.0.1:5'\n[control]\nport=5\n"),
    Bad(
        "control_port and control.port are one setting",
        LISTED,
        file="control_port = 1\n[control]\nport = 2\n",
    ),
    Bad("audit.on_error must be refuse or continue", LISTED, file="[audit]\non_error = 'ignore'\n"),
]


def prepared(bad: Bad, folder: Path, number: int) -> Start:
    argv = ["serve", *bad.argv]
    if bad.file is not None:
        path = folder / f"{number}.toml"
        path.write_bytes(bad.file.encode("utf-8", "surrogateescape"))
        argv += ["--config", str(path)]
    return Start(argv, {**SECRETS, **bad.env}, str(folder))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Ended]:
    """All bad starts, a process each."""
    folder = tmp_path_factory.mktemp("settings")
    return run_all([prepared(bad, folder, number) for number, bad in enumerate(BAD)])


@pytest.mark.parametrize("number", range(len(BAD)), ids=lambda number: f"{number}: {BAD[number].words}")
def test_a_bad_setting_is_one_line_and_exit_2(number: int, outcomes: list[Ended]) -> None:
    ended, bad = outcomes[number], BAD[number]
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert ended.err.endswith("\n")
    assert bad.words in ended.err


@pytest.mark.parametrize("bad", BAD[:: len(BAD) // 6])
def test_a_start_of_its_own_ends_as_a_forked_one(bad: Bad, outcomes: list[Ended], tmp_path: Path) -> None:
    start = prepared(bad, tmp_path, 0)
    ended = run(*start.argv, env=start.env, cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert bad.words in ended.err


def forms(secret: str) -> list[str]:
    raw = secret.encode()
    return [
        secret,
        base64.b64encode(raw).decode().rstrip("="),
        raw.hex(),
        secret.replace("-", "%2D"),
        "CANARY",
    ]


def test_no_bad_start_shows_a_secret(outcomes: list[Ended]) -> None:
    for bad, ended in zip(BAD, outcomes, strict=True):
        for form in forms(SECRET):
            assert form not in ended.out + ended.err, bad


@pytest.mark.parametrize(
    "argv", [["--help"], ["serve", "--help"], ["serve", "--nonsense"], ["config", "show"], ["--version"]]
)
def test_no_verb_shows_a_secret(argv: list[str]) -> None:
    env = {**SECRETS, "EGRESS_CLIENT_TOKEN": "env:TOK", "STEERABLE_EGRESS_CONTROL_TOKEN": SECRET}
    ended = run(*argv, env=env)
    assert not [form for form in forms(SECRET) if form in ended.out + ended.err]


@pytest.mark.parametrize(
    ("entry", "argv", "code", "out", "err"),
    [
        (PROGRAM, ["--help"], 0, "An allow-listing egress proxy", ""),
        (PROGRAM, ["--version"], 0, "steerable-egress 0.", ""),
        (PROGRAM, ["serve", "--version"], 0, "steerable-egress 0.", ""),
        (PROGRAM, [], 2, "", "error: name a command: allow, "),
        (PROGRAM, ["srve"], 2, "", "error: unknown command 'srve', did you mean serve?"),
        (PROGRAM, ["sandbx"], 2, "", "error: unknown command 'sandbx', did you mean sandbox?"),
        (PROGRAM, ["zzz"], 2, "", "error: unknown command 'zzz'; see egress-proxy --help"),
        (PROGRAM, ["--allow", "a"], 2, "", "error: unknown command '--allow', did you mean allow?"),
        (DROP_IN, ["--help"], 0, "Start the proxy.", ""),
        (DROP_IN, ["--version"], 0, "steerable-egress 0.", ""),
        (DROP_IN, [], 2, "", "error: nothing may be reached"),
        (DROP_IN, ["--bind", "x", "--allow", "a"], 2, "", "error: --bind must be"),
        (MODULE, ["--help"], 0, "An allow-listing egress proxy", ""),
        (MODULE, ["--version"], 0, "steerable-egress 0.", ""),
        (MODULE, ["--bind", "x", "--allow", "a"], 2, "", "error: --bind must be"),
        (MODULE, ["check", "a", "--allow", "a"], 0, "allowed  a:443", ""),
        (PROGRAM, ["check", "b", "--allow", "a"], 3, "refused  b:443", "hint: "),
        (PROGRAM, ["grants"], 4, "", "error: the control token is missing"),
    ],
)
def test_the_entry_points_and_their_codes(
    entry: tuple[str, ...], argv: list[str], code: int, out: str, err: str
) -> None:
    ended = run(*argv, entry=entry)
    assert ended.code == code
    assert ended.out.startswith(out)
    assert ended.err.startswith(err)
    assert bool(ended.out) is bool(out)
    assert ended.err.count("\n") <= 1


def test_version_names_python_and_openssl() -> None:
    out = run("--version").out
    assert f"Python {'.'.join(map(str, sys.version_info[:2]))}" in out
    assert "OpenSSL" in out


def test_a_good_start_warns_and_shows_no_secret() -> None:
    env = {**SECRETS, "EGRESS_DENNY": "x"}
    argv = ["--allow", "169.254.169.254", *RULE, "--control-token-env", "TOK", "--attach", "", "-q"]
    with service(*argv, env=env, prints=2) as running:
        assert running.lines.keys() == {"EGRESS_PROXY_PORT", "EGRESS_CONTROL_PORT"}
        running.process.send_signal(signal.SIGTERM)
        out, err = running.process.communicate(timeout=30)
        assert running.process.returncode == 0
    assert [line.partition(" ")[0] for line in err.splitlines()] == ["warning:", "warning:"]
    assert not [form for form in forms(SECRET) if form in out + err]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_running_service_shows_no_secret_in_its_proc_entries() -> None:
    env = {**SECRETS, "STEERABLE_EGRESS_SECRET": SECRET, "EGRESS_CONTROL__TOKEN": "env:TOK"}
    with service("--allow-none", *RULE, env=env, prints=2) as running:
        for entry in ("environ", "cmdline"):
            path = Path(f"/proc/{running.process.pid}/{entry}")
            if os.geteuid() != 0 and entry == "environ":
                with pytest.raises(PermissionError):
                    path.read_bytes()
                continue
            held = path.read_bytes()
            for name in ("KEY", "TOK", "STEERABLE_EGRESS_SECRET"):
                assert f"{name}={SECRETS.get(name, SECRET)}".encode() not in held


def test_a_reader_that_has_seen_enough_ends_a_verb_quietly() -> None:
    script = '"$0" -m egress_proxy config show | head -n 0; echo "${PIPESTATUS[0]}"'
    result = subprocess.run(
        ["bash", "-c", script, sys.executable],
        env={**environment(), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.stderr) == ("141\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_that_cannot_be_written_is_a_failure() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, *MODULE, "config", "show"],
            env={**environment(), "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == "error: cannot go on: No space left on device\n"


def test_ctrl_c_ends_a_verb_quietly() -> None:
    slow = (
        "import sys, time; import egress_proxy.cli.check as check;"
        "check.check = lambda *_: (print('ready', flush=True), time.sleep(30));"
        "from egress_proxy.cli.main import main; sys.exit(main(['check', 'a']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", slow],
        env={**environment(), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "")


def test_a_fault_of_ours_is_one_line_without_its_text() -> None:
    faulty = (
        "import sys; import egress_proxy.cli.check as check\n"
        "def fail(*_): raise ValueError('CANARY')\n"
        "check.check = fail\n"
        "from egress_proxy.cli.main import main; sys.exit(main(['check', 'a']))"
    )
    ended = run(entry=("-c", faulty))
    assert ended.code == 1
    assert ended.err.startswith("error: internal fault, ValueError at ")
    assert ended.err.count("\n") == 1
    assert "CANARY" not in ended.err


def test_env_needs_no_settings_library() -> None:
    code = (
        "import sys; from egress_proxy.cli.main import main; main(['env', '--unset']);"
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'aiohttp', 'structlog')))"
    )
    assert run(entry=("-c", code)).code == 0


def test_every_verb_of_the_contract_that_exists_now_is_there() -> None:
    assert set(SUMMARIES) == {
        "serve", "run", "sandbox", "check", "classify", "env", "allow", "revoke", "grants", "config",
    }  # fmt: skip
