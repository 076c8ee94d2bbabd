"""Which file is read, and that a bad one is named with its line and without its content."""

import os
from pathlib import Path

import pytest

from egress_proxy.settings.origins import SettingsError
from egress_proxy.settings.toml_file import FILE_LIMIT_BYTES, SettingsFile, choose_file, file_layer


@pytest.mark.parametrize(
    ("flag", "environ", "expected"),
    [
        ("f.toml", {"EGRESS_CONFIG": "v.toml"}, SettingsFile("f.toml", True)),
        (None, {"EGRESS_CONFIG": "v.toml"}, SettingsFile("v.toml", True)),
        (
            None,
            {"EGRESS_CONFIG": "", "XDG_CONFIG_HOME": "/x", "HOME": "/h"},
            SettingsFile("/x/egress/egress.toml", False),
        ),
        (None, {"HOME": "/h"}, SettingsFile("/h/.config/egress/egress.toml", False)),
        (None, {}, None),
    ],
)
def test_the_file_that_is_chosen(
    flag: str | None, environ: dict[str, str], expected: SettingsFile | None
) -> None:
    assert choose_file(flag, environ) == expected


@pytest.mark.parametrize(
    "environ", [{"XDG_CONFIG_HOME": "."}, {"HOME": "."}, {"HOME": ""}, {"XDG_CONFIG_HOME": "x"}]
)
def test_the_working_directory_is_never_looked_at(environ: dict[str, str]) -> None:
    assert choose_file(None, environ) is None


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646, 0o620, 0o602])
def test_a_file_that_others_can_write_is_refused_with_its_mode_and_the_remedy(
    tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "egress.toml"
    path.write_text('allow = ["ok.example"]\n')
    path.chmod(mode)
    words = rf"^the settings file {path} can be written by others \(mode 0{mode:o}\): chmod go-w {path}$"
    with pytest.raises(SettingsError, match=words):
        file_layer(SettingsFile(str(path), False))


@pytest.mark.parametrize("mode", [0o777, 0o703])
def test_a_folder_above_in_which_everybody_can_replace_it_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "open" / "inner" / "egress.toml"
    path.parent.mkdir(parents=True)
    path.write_text("")
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "open").chmod(mode)
    words = rf"replaced by everybody, who may write to {tmp_path}/open \(mode 0{mode:o}\): chmod o-w "
    for named in (path, tmp_path / "link"):
        with pytest.raises(SettingsError, match=words):
            file_layer(SettingsFile(str(named), True))


@pytest.mark.parametrize(("folder", "mode"), [(0o1777, 0o644), (0o755, 0o600), (0o775, 0o444)])
def test_a_file_that_nobody_else_can_change_is_read(tmp_path: Path, folder: int, mode: int) -> None:
    path = tmp_path / "egress.toml"
    path.write_text("")
    path.chmod(mode)
    tmp_path.chmod(folder)
    assert file_layer(SettingsFile(str(path), True)) is not None


def test_an_empty_config_flag_is_an_error() -> None:
    with pytest.raises(SettingsError, match="--config must name a file"):
        choose_file("", {})


def refusal(path: Path, named: bool = True) -> str:
    with pytest.raises(SettingsError) as refused:
        file_layer(SettingsFile(str(path), named))
    return str(refused.value)


def test_a_named_file_must_exist_and_the_default_one_need_not(tmp_path: Path) -> None:
    path = tmp_path / "egress.toml"
    assert refusal(path) == f"the settings file {path} does not exist"
    assert file_layer(SettingsFile(str(path), False)) is None


def test_a_default_file_that_is_there_must_be_readable(tmp_path: Path) -> None:
    assert "is unreadable: Is a directory" in refusal(tmp_path, named=False)


def test_what_is_no_regular_file_is_refused_and_waited_for_by_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        assert "is no regular file" in refusal(path)


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"#" * (FILE_LIMIT_BYTES + 1))
    (tmp_path / "long").chmod(0o600)
    assert "longer than 4 MiB" in refusal(tmp_path / "long")
    assert FILE_LIMIT_BYTES == 4 * 1024 * 1024


def test_a_name_with_a_zero_byte_is_refused() -> None:
    assert "is unreadable" in refusal(Path("a\0b"))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"bind = 1\nrelay = CANARY\n", 2),
        (b"bind = 'a'\nbind = 'b'\n", 2),
        (b'[control]\n\ntoken = "CANARY\n', 3),
        (b"a = [\n", 1),
        (b"a = 1\nb = '\xff'\n", 2),
        (b"\xef\xbb\xbfbind = 'a'\n", 1),
        (b"a = " + b"[" * 100_000, 1),
    ],
)
def test_what_is_no_toml_is_named_by_its_line(tmp_path: Path, content: bytes, line: int) -> None:
    path = tmp_path / "egress.toml"
    path.write_bytes(content)
    message = refusal(path)
    assert message.startswith(f"{path}:{line}: not ")
    assert "CANARY" not in message


def test_a_layer_says_in_which_line_a_value_stands(tmp_path: Path) -> None:
    path = tmp_path / "egress.toml"
    path.write_text("control_port = 5\n[limits]\ntunnels = 6\n")
    layer = file_layer(SettingsFile(str(path), True))
    assert layer is not None
    assert layer.tree == {"control": {"port": 5}, "limits": {"tunnels": 6}}
    assert layer.locate(("control", "port")).text == f"{path}:1"
    assert layer.locate(("limits", "tunnels")).text == f"{path}:3"
    assert layer.locate(("bind",)).text == str(path)


def test_a_file_that_cannot_be_opened_is_named_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "egress.toml"
    path.symlink_to(path)
    message = refusal(path, named=False)
    assert message.startswith(f"the settings file {path} is unreadable: Too many levels")
