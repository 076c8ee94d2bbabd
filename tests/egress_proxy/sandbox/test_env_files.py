"""Files of variables: which names are meant, and that the search finds them, ends, and follows nothing."""

from pathlib import Path

import pytest

from egress_proxy.sandbox import env_files
from egress_proxy.sandbox.env_files import is_env_file, search


@pytest.mark.parametrize(
    ("name", "is_one"),
    [(".env", True), (".ENV", True), (".env.local", True), (".env.production", True),
     (".env.production.local", True), (".env-prod", True), (".env_prod", True), (".env.bak", True),
     (".env~", True), (".envrc", True), (".env.vault", True), (".env.example", False),
     (".env.sample", False), (".env.template", False), (".env.local.example", False),
     (".env-dist", False), (".env.tpl", False), (".environment", False), ("env", False),
     (".envoy", False)],
)  # fmt: skip
def test_which_names_hold_variables(name: str, is_one: bool) -> None:
    assert is_env_file(name) is is_one


def test_the_search_leaves_out_what_tools_fill_and_what_it_is_told_to(tmp_path: Path) -> None:
    for name in ("a/.env", "node_modules/x/.env", ".venv/.env", "told/.env", "a/.git/.env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to("a")
    found = search([str(tmp_path)], {f"{tmp_path}/told"})
    assert (found.paths, found.configs) == ([f"{tmp_path}/a/.env"], [f"{tmp_path}/a/.git/config"])
    assert found.complete


def test_one_folder_with_too_many_entries_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (tmp_path / str(number)).mkdir()
    monkeypatch.setattr(env_files, "ENTRIES_LIMIT", 10)
    assert not search([str(tmp_path)]).complete
    assert not search([f"{tmp_path}/1"], entries=11).complete
