"""What is masked: the homes' secrets, .env files anywhere, what was named; each wherever it can be seen."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from egress_proxy.sandbox import env_files, masks, protected
from egress_proxy.sandbox.masks import EARLY, TOKENS, Masked, masked_of, present
from egress_proxy.sandbox.mounts import MountPoint
from egress_proxy.sandbox.protected import scan
from egress_proxy.sandbox.spec import SandboxSpec
from tests.support.confined import spec_for


def masked(spec: SandboxSpec) -> Masked:
    return masked_of(spec, [scan(root) for root in spec.roots])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def in_home(home: Path) -> SandboxSpec:
    return replace(spec_for(), homes=(str(home),), cwd=str(home))


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"KEY={name}")


def names(found: Masked, folder: Path) -> set[str]:
    return {os.path.relpath(path, folder) for path in found.paths}


def test_all_three_kinds_by_their_real_paths(tmp_path: Path) -> None:
    home, root, elsewhere = (tmp_path / name for name in ("home", "root", "elsewhere"))
    for folder in (home, root, elsewhere / "ssh"):
        folder.mkdir(parents=True)
    (home / ".ssh").symlink_to(elsewhere / "ssh")
    (root / ".env").write_text("KEY=1")
    (elsewhere / "named").write_text("x")
    named = str(elsewhere / "named")
    spec = replace(spec_for(root), homes=(str(home),), masks=(named, named))
    assert masked(spec).paths == (named, str(elsewhere / "ssh"), str(root / ".env"))
    assert masked(replace(spec, mask_secrets=False)).paths == (named,)
    assert masked(replace(spec, homes=())).paths == (named, str(root / ".env"))


def test_env_files_are_found_in_home_current_folder_and_roots(tmp_path: Path, home: Path) -> None:
    make(home, ".env", "work/a/b/c/d/e/.env.production", ".gemini/.env", "work/.envrc")
    make(tmp_path, "root/apps/web/.env", "root/a/b/c/d/.env.local", "here/.env", "here/deep/er/.env-prod")
    spec = replace(spec_for(tmp_path / "root"), homes=(str(home),), cwd=str(tmp_path / "here"))
    assert names(masked(spec), tmp_path) == {
        "home/.env", "home/work/a/b/c/d/e/.env.production", "home/.gemini/.env", "home/work/.envrc",
        "root/apps/web/.env", "root/a/b/c/d/.env.local", "here/.env", "here/deep/er/.env-prod",
    }  # fmt: skip


def test_what_the_repository_holds_is_not_masked_and_what_it_does_not_is(home: Path) -> None:
    make(home, "work/.env", "work/.env.local", "work/.env.staged")
    work = home / "work"
    git = ("git", "-C", str(work), "-c", "user.name=t", "-c", "user.email=t@t.test")
    subprocess.run((*git, "init", "-q"), check=True)
    subprocess.run((*git, "add", ".env"), check=True)
    blob = subprocess.run(
        (*git, "hash-object", "-w", "--stdin"), input=b"guess", capture_output=True, check=True
    )
    entry = f"100644,{blob.stdout.decode().strip()},.env.staged"
    subprocess.run((*git, "update-index", "--add", "--cacheinfo", entry), check=True)
    assert names(masked(in_home(home)), work) == {".env.local", ".env.staged"}
    (work / ".env").write_text("KEY=new")
    assert ".env" in names(masked(in_home(home)), work), "the index names it but does not hold this content"


def test_one_path_is_taken_off_the_mask(home: Path) -> None:
    make(home, ".aws/config", ".aws/credentials", ".aws/sso/token", "a/.env", "b/.env", ".ssh/id")
    spec = replace(in_home(home), unmasked=(f"{home}/.aws/config", f"{home}/a/.env", f"{home}/.ssh"))
    assert names(masked(spec), home) == {".aws/credentials", ".aws/sso", "b/.env"}
    assert f"{home}/a/.env" in masked(replace(spec, masks=(f"{home}/a/.env",))).paths, "a mask that was named"


def test_links_in_a_secret_folder_are_followed(home: Path) -> None:
    make(home, "dotfiles/aws/credentials", "dotfiles/kube", ".aws/config")
    (home / ".aws/credentials").symlink_to("../dotfiles/aws/credentials")
    (home / ".kube").mkdir()
    (home / ".kube/deep").mkdir()
    (home / ".kube/deep/config").symlink_to("../../dotfiles/kube")
    (home / ".kube/tool").symlink_to("/usr/bin/env")
    (home / ".kube/up").symlink_to("..")
    expected = {".aws", ".kube", "dotfiles/aws/credentials", "dotfiles/kube"}
    assert names(masked(in_home(home)), home) == expected


def test_a_search_that_ends_early_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(home, *(f"a/{number}" for number in range(30)), "b/.env")
    assert masked(in_home(home)).open == ()
    monkeypatch.setattr(env_files, "ENTRIES_LIMIT", 20)
    monkeypatch.setattr(protected, "ENTRIES_LIMIT", 20)
    assert masked(in_home(home)).open == (EARLY,)
    assert masked(replace(spec_for(home), homes=())).open == (EARLY,)


@pytest.mark.parametrize(
    "line",
    ["url = https://user:ghp_x@host.test/x", "url = https://ghp_0123456789abcdefghij@host.test/x",
     "extraheader = AUTHORIZATION: basic eDp5", "password = x", "token = x"],
)  # fmt: skip
def test_a_token_in_gits_settings_is_told(home: Path, line: str) -> None:
    make(home, "work/.git/HEAD")
    for config in (home / "work/.git/config", home / ".gitconfig"):
        config.write_text("[remote]\n\turl = https://me@host.test/x\n\turl = git@host.test:x\n")
        assert masked(in_home(home)).open == ()
        config.write_text(f"[x]\n\t{line}\n")
        assert masked(in_home(home)).open == (TOKENS,)
        config.unlink()


def test_a_second_place_of_a_home_is_masked_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(home, ".ssh/id")
    mounts = (MountPoint("1:1", "/", "/", "ext4"), MountPoint("1:1", str(home), "/mnt/second", "ext4"))
    monkeypatch.setattr(masks, "read_mounts", lambda: mounts)
    assert masked(in_home(home)).paths == ("/mnt/second/.ssh", f"{home}/.ssh")


def test_a_folder_that_holds_the_place_to_work_in_is_not_hidden(home: Path) -> None:
    make(home, ".docker/work/file", ".ssh/id")
    spec = replace(spec_for(home / ".docker/work"), homes=(str(home),))
    assert names(masked(spec), home) == {".ssh"}


def test_a_device_is_nothing_to_hide(home: Path) -> None:
    (home / ".npmrc").symlink_to("/dev/null")
    (home / ".kube").symlink_to("nowhere")
    os.mkfifo(home / ".netrc")
    assert list(present(str(home)))
    assert names(masked(in_home(home)), home) == {".netrc"}
