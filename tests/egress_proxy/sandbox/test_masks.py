"""What is masked: the home's secrets, the roots' .env files, what was named; each by its real path, once."""

from dataclasses import replace
from pathlib import Path

from egress_proxy.sandbox.masks import masked_paths
from tests.support.confined import spec_for


def test_all_three_kinds_by_their_real_paths(tmp_path: Path) -> None:
    home, root, elsewhere = (tmp_path / name for name in ("home", "root", "elsewhere"))
    for folder in (home, root, elsewhere / "ssh"):
        folder.mkdir(parents=True)
    (home / ".ssh").symlink_to(elsewhere / "ssh")
    (root / ".env").write_text("KEY=1")
    (elsewhere / "named").write_text("x")
    named = str(elsewhere / "named")
    spec = replace(spec_for(root), home=str(home), masks=(named, named))
    assert masked_paths(spec) == (named, str(elsewhere / "ssh"), str(root / ".env"))
    assert masked_paths(replace(spec, mask_secrets=False)) == (named,)
    assert masked_paths(replace(spec, home=None)) == (named, str(root / ".env"))
