"""Contract sections 1 and 8: what a settings file may hold, where it is read from, and who wins.

A wrong setting is one line and no listener. What settings do is in the other files of this area.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.case_parts import NO_SUCH_NAME, NOT_LISTED, connect_head, refusal, write_config
from tests.support.dns_stub import DnsStub
from tests.support.program import REPOSITORY, run_cli
from tests.support.service import Service

# Text of the file → the words that must stand in the one line of the error, its line number among them.
WRONG: dict[str, tuple[str, tuple[str, ...]]] = {
    "no TOML": ("allow = [\n", ()),
    "an unknown key": ('allow = ["a.example"]\nalow_none = true\n', ("alow_none", "2", "allow_none")),
    "an unknown table": ("allow_none = true\n[limit]\nhead_bytes = 1\n", ("limit", "2", "limits")),
    "an unknown key of a table": (
        "allow_none = true\n[limits]\nhead_byte = 1\n",
        ("head_byte", "3", "head_bytes"),
    ),
    "an unknown key of an entry": (
        '[[allow]]\nhost = "a.example"\nprivat = true\n',
        ("privat", "3", "private"),
    ),
    "an unknown key of a rule": (
        '[[inject]]\nname = "a"\nhost = "a.example"\nsecrets = "env:S"\n',
        ("secrets", "4", "secret"),
    ),
    "an unknown key of the audit": (
        'allow_none = true\n[audit]\nonerror = "refuse"\n',
        ("onerror", "3", "on_error"),
    ),
    "a key below the wrong table": ("[limits]\nhead_bytes = 99\nallow_none = true\n", ("allow_none", "3")),
    "a text for a number": ('allow_none = true\nconnect_timeout = "10"\n', ("connect_timeout",)),
    "zero seconds": ("allow_none = true\nconnect_timeout = 0\n", ("connect_timeout",)),
    "no number": ("allow_none = true\nconnect_timeout = nan\n", ("connect_timeout",)),
    "a number for a switch": ("allow_none = 1\n", ("allow_none",)),
    "one text for a list": ('allow = "a.example"\n', ("allow",)),
    "two hosts in one": ('allow = ["a.example,b.example"]\n', ("a.example,b.example",)),
    "a line end in an entry": ('allow = ["a.example\\n"]\n', ("allow",)),
    "an entry for nobody": ('[[allow]]\nhost = "a.example"\nclient = "nobody"\n', ("client", "3")),
    "nothing allowed": ("", ("--allow",)),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_is_one_line_that_says_what_and_where(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    done = run_cli("config", "check", "--config", write_config(tmp_path, text))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    missing = [word for word in words if not re.search(rf"(?<![\w.]){re.escape(word)}(?![\w])", done.stderr)]
    assert missing == [], done.stderr


def test_serve_ends_with_2_before_it_listens(tmp_path: Path) -> None:
    path = write_config(tmp_path, 'allow = ["a.example"]\nnonsense = 1\n')
    done = run_cli("serve", "--bind", "127.0.0.1:0", "--config", path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    done = run_cli("serve", "--bind", "127.0.0.1:0", "--config", str(tmp_path / "missing.toml"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


# The example of contract section 8, without what is not there yet.
WHOLE = """
bind = "127.0.0.1:8899"
on_miss = "deny"
connect_timeout = 10
[[allow]]
host = "api.example.com"
reason = "text"
[[allow]]
host = " *.inside.example:8080 "
private = true
client = "build"
[[deny]]
host = "*.tracker.example"
[[inject]]
name = "provider"
host = "api.example.com"
port = 80
upstream_port = 443
scheme = "https"
methods = ["GET", "POST"]
paths = ["/v1/"]
header = "Authorization"
format = "Bearer {secret}"
secret = "file:/run/secrets/provider"
opaque_bodies = true
[[client]]
name = "build"
token = "env:EGRESS_CLIENT_BUILD"
[control]
port = 0
token = "env:STEERABLE_EGRESS_CONTROL_TOKEN"
[limits]
head_bytes = 16384
head_timeout_s = 10
tunnels = 4096
tunnels_per_client = 1024
idle_timeout_s = 3600
half_close_timeout_s = 60
drain_timeout_s = 5
first_byte_timeout_s = 600
tcp_keepalive_s = 45
[tls]
intercept = false
require_sni = false
only_tls_on_443 = false
[audit]
path = ""
on_error = "refuse"
"""


def test_every_documented_key_is_understood(tmp_path: Path) -> None:
    done = run_cli("config", "check", "--config", write_config(tmp_path, WHOLE))
    assert (done.returncode, done.stderr) == (0, "")
    done = run_cli("config", "check", "--config", str(REPOSITORY / "deploy" / "egress.example.toml"))
    assert (done.returncode, done.stderr) == (0, "")


def test_flags_win_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    limits = "[limits]\ntunnels = 1\nhead_bytes = 99\n"
    path = write_config(tmp_path, f'allow_none = true\nbind = "127.0.0.1:1"\n{limits}')
    env = {"EGRESS_CONFIG": path, "EGRESS_BIND": "127.0.0.1:2", "EGRESS_LIMITS__TUNNELS": "2"}
    done = run_cli("config", "show", "--json", "--bind", "127.0.0.1:3", env=env)
    assert done.returncode == 0, done.stderr
    for shown in ("127.0.0.1:3", "EGRESS_LIMITS__TUNNELS", "egress.toml"):
        assert shown in done.stdout
    text = json.dumps(json.loads(done.stdout))
    assert "127.0.0.1:1" not in text
    assert "127.0.0.1:2" not in text


def test_the_working_directory_is_never_looked_at(
    start_service: Callable[..., Service], dns: DnsStub, tmp_path: Path
) -> None:
    """An agent can write there."""
    for name in ("egress.toml", ".egress.toml", "pyproject.toml", "config.toml"):
        (tmp_path / name).write_text('allow = ["evil.test"]')
    (tmp_path / "egress").mkdir()
    (tmp_path / "egress" / "egress.toml").write_text('allow = ["evil.test"]')
    (tmp_path / ".env").write_text('EGRESS_ALLOW=["evil.test"]')
    done = run_cli("check", "evil.test", "--allow", "ok.example", cwd=tmp_path)
    assert done.returncode == 3
    program = ("sh", "-c", 'cd "$0" && exec "$@"', str(tmp_path), *Service("x").argv[:4])
    service = start_service("--allow", "ok.example", "--resolver", dns.address, program=program)
    assert refusal(service, connect_head("evil.test:443")) == NOT_LISTED


def test_the_file_of_the_users_configuration_is_read(
    start_service: Callable[..., Service], dns: DnsStub, tmp_path: Path
) -> None:
    (tmp_path / "egress").mkdir()
    (tmp_path / "egress" / "egress.toml").write_text('allow = ["  filed.example\\t"]')
    service = start_service("--resolver", dns.address, env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert refusal(service, connect_head("filed.example:443")) == NO_SUCH_NAME
    assert refusal(service, connect_head("evil.test:443")) == NOT_LISTED


def test_variables_are_settings_too(start_service: Callable[..., Service], dns: DnsStub) -> None:
    env = {
        "EGRESS_ALLOW": '["listed.example"]',
        "EGRESS_DENY": '["denied.example"]',
        "EGRESS_RESOLVER": dns.address,
        "STEERABLE_WEB_ALLOWED_DOMAINS": "docs.example, pypi.example",
    }
    service = start_service(env=env)
    for host in ("listed.example", "docs.example", "a.docs.example", "b.a.pypi.example"):
        assert refusal(service, connect_head(f"{host}:443")) == NO_SUCH_NAME, host
    for host in ("a.listed.example", "xdocs.example", "example", "evil.test"):
        assert refusal(service, connect_head(f"{host}:443")) == NOT_LISTED, host
    for bad in ("*", "com", "docs.example,,https://x.example"):
        done = run_cli(
            "check", "a.example", "--allow", "a.example", env={"STEERABLE_WEB_ALLOWED_DOMAINS": bad}
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), bad
        assert "STEERABLE_WEB_ALLOWED_DOMAINS" in done.stderr
