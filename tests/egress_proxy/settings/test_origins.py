"""Which source wins, that lists add up, and that every value keeps its origin."""

from egress_proxy.settings.origins import (
    DEFAULT,
    MESSAGE_LIMIT,
    Key,
    Layer,
    Origin,
    SettingsError,
    Source,
    key_text,
    merge,
)


def layer(name: str, tree: dict[str, object]) -> Layer:
    def locate(key: Key) -> Origin:
        return Origin(Source.FILE, f"{name}:{key_text(key)}")

    return Layer(tree, locate)


def test_the_first_layer_wins_and_the_rest_shows_through() -> None:
    merged = merge(
        [
            layer("strong", {"bind": "a", "limits": {"tunnels": 1}}),
            layer("weak", {"bind": "b", "relay": "loop", "limits": {"tunnels": 2, "head_bytes": 3}}),
        ]
    )
    assert merged.tree == {"bind": "a", "relay": "loop", "limits": {"tunnels": 1, "head_bytes": 3}}
    assert merged.origin(("bind",)).text == "strong:bind"
    assert merged.origin(("relay",)).text == "weak:relay"
    assert merged.origin(("limits", "tunnels")).text == "strong:limits.tunnels"
    assert merged.origin(("limits", "head_bytes")).text == "weak:limits.head_bytes"


def test_lists_add_up_so_that_no_deny_entry_is_lost() -> None:
    merged = merge([layer("flags", {"deny": ["a"]}), layer("file", {"deny": [{"host": "b"}, "c"]})])
    assert merged.tree == {"deny": ["a", {"host": "b"}, "c"]}
    assert merged.origin(("deny", 0)).text == "flags:deny[0]"
    assert merged.origin(("deny", 1, "host")).text == "file:deny[0].host"
    assert merged.origin(("deny", 2)).text == "file:deny[1]"


def test_merging_changes_no_layer() -> None:
    tree: dict[str, object] = {"limits": {"tunnels": 1}, "deny": ["a"]}
    merge([layer("one", tree), layer("two", {"limits": {"head_bytes": 2}, "deny": ["b"]})])
    assert tree == {"limits": {"tunnels": 1}, "deny": ["a"]}


def test_what_nobody_said_is_a_default() -> None:
    assert merge([layer("file", {"bind": "a"})]).origin(("relay",)) == DEFAULT
    assert merge([]).origin(("allow", 0, "host")) == DEFAULT


def test_keys_are_written_as_people_read_them() -> None:
    assert key_text(("allow", 2, "host")) == "allow[2].host"
    assert key_text(("limits", "tunnels")) == "limits.tunnels"


def test_an_error_names_what_the_user_wrote() -> None:
    key = ("limits", "tunnels")
    assert str(Origin(Source.FLAG, "--bind").error(("bind",), "is wrong")) == "--bind is wrong"
    assert str(Origin(Source.FILE, "x.toml:3").error(key, "is wrong")) == "limits.tunnels is wrong (x.toml:3)"
    nested = Origin(Source.VARIABLE, "EGRESS_LIMITS__TUNNELS").error(key, "is wrong")
    assert str(nested) == "EGRESS_LIMITS__TUNNELS is wrong"
    whole = Origin(Source.VARIABLE, "EGRESS_LIMITS").error(key, "is wrong")
    assert str(whole) == "EGRESS_LIMITS: limits.tunnels is wrong"


def test_a_message_is_one_short_printable_line() -> None:
    message = str(SettingsError("a\nb\x1b[2J\u2028\udcff" + "x" * 1000))
    assert message.startswith("a\\nb\\x1b[2J\\u2028\\udcff")
    assert len(message) == MESSAGE_LIMIT
