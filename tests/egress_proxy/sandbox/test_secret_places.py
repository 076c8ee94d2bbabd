"""Where secrets lie below a home: plain paths with a reason, and agents keep what they start from."""

import posixpath
from pathlib import Path

import pytest

from egress_proxy.sandbox.masks import present
from egress_proxy.sandbox.secret_places import SECRET_NAMES, SECRETS

AGENTS = [
    ".claude", ".claude.json", ".codex", ".codex/config.toml", ".gemini", ".gemini/settings.json",
    ".copilot", ".config/opencode", ".local/share/opencode", ".gitconfig", ".config/git/config", ".cargo",
    ".m2", ".config", ".local", ".local/share", ".cache", "Library",
]  # fmt: skip
PLANTED = [
    ".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json",
    ".config/containers/auth.json", ".cache/huggingface/token", ".terraform.d", ".m2/settings.xml",
    ".gradle/gradle.properties", ".config/pip/pip.conf", ".my.cnf", ".pgpass", ".config/rclone", ".s3cfg",
    ".config/glab-cli", ".config/doctl", ".fly", ".oci", ".config/age", ".config/sops", ".config/Signal",
    ".bash_history", ".psql_history", ".mysql_history", ".python_history", ".Xauthority", ".netrc",
    ".cargo/credentials.toml", ".gem/credentials", ".password-store", ".local/share/keyrings", ".mozilla",
    ".config/google-chrome", ".config/chromium",
]  # fmt: skip


def test_each_is_a_path_below_a_home_and_says_what_lies_there() -> None:
    for name, what in SECRETS.items():
        assert name == posixpath.normpath(name)
        assert not name.startswith(("/", "..", "~"))
        assert what


@pytest.mark.parametrize("name", PLANTED)
def test_what_people_and_tools_leave_in_a_home_is_known(name: str) -> None:
    assert name in SECRETS


@pytest.mark.parametrize("name", AGENTS)
def test_what_programs_start_from_stays_readable(name: str) -> None:
    assert not any(name == secret or name.startswith(f"{secret}/") for secret in SECRETS)


def test_every_name_is_found_where_it_is(tmp_path: Path) -> None:
    for name in SECRET_NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir(exist_ok=True)
    assert set(present(str(tmp_path))) == {f"{tmp_path}/{name}" for name in SECRET_NAMES}
