"""The service's own files: which settings name one, and by which flag or variable people know it."""

from pathlib import Path

from egress_proxy.cli.own_files import kept_in_run, own_files, settings_file
from egress_proxy.cli.plan import AuditPlan
from egress_proxy.core.attach import OwnFiles
from egress_proxy.proxy.audit import OnError
from egress_proxy.settings.load import load
from egress_proxy.vault.sources import parse_source


def test_secret_files_are_hidden_and_settings_audit_and_recording_kept(tmp_path: Path) -> None:
    config = tmp_path / "egress.toml"
    config.write_text(
        f'allow_none = true\nrecord_requests = "{tmp_path}/r"\n[audit]\npath = "{tmp_path}/a"\n'
    )
    config.chmod(0o600)
    settings = load({}, {}, str(config)).settings
    secrets = [parse_source("file:/run/key"), parse_source("env:KEY")]
    own = own_files(settings, secrets, settings_file(str(config), {}))
    assert own == OwnFiles(("/run/key",), (str(config), str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/r"))


def test_each_is_known_by_what_named_it(tmp_path: Path) -> None:
    audit, own = AuditPlan(tmp_path / "a", OnError.REFUSE), OwnFiles(("/run/key",))
    named = [one.what for one in kept_in_run(own, "x.toml", {}, audit, tmp_path / "r")]
    for word, what in zip(
        ("--config", "folder", "--audit", "--record-requests", "secret"), named, strict=True
    ):
        assert word in what
    file, folder = kept_in_run(OwnFiles(), None, {"EGRESS_CONFIG": "/x/y"}, None, None)
    assert [file.path, folder.path] == ["/x/y", "/x"]
    assert "$EGRESS_CONFIG" in file.what
    assert "$EGRESS_CONFIG" in folder.what
    file, _ = kept_in_run(OwnFiles(), None, {"HOME": "/home/u"}, None, None)
    assert file.path == "/home/u/.config/egress/egress.toml"
