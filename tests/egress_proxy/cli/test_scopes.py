"""Clients can be told apart, and an entry for one names one that exists."""

import pytest

from egress_proxy.cli.scopes import check_client, client_names
from egress_proxy.settings.load import Loaded, load
from egress_proxy.settings.origins import SettingsError


def clients(names: str) -> Loaded:
    tables = ", ".join(f'{{"name": "{name}", "token": "env:T{i}"}}' for i, name in enumerate(names.split()))
    return load({}, {"EGRESS_CLIENT": f"[{tables}]"})


def test_names_are_collected() -> None:
    assert client_names(clients("build ci sandbox-ci")) == {"build", "ci", "sandbox-ci"}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("anonymous", "cannot be anonymous"),
        ("a b a", "is taken"),
        ("sandbox-7", "sandboxes get such names"),
    ],
)
def test_a_name_that_tells_nobody_apart_is_refused(names: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        client_names(clients(names))


def test_an_entry_for_a_client_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"names no \[\[client\]\], did you mean 'build'\?"):
        check_client(load({}, {}), ("deny", 0, "client"), "biuld", ["build", "ci"])


@pytest.mark.parametrize("name", [None, "anonymous", "build"])
def test_an_entry_for_everybody_for_nobody_known_or_for_a_client_passes(name: str | None) -> None:
    check_client(load({}, {}), ("deny", 0, "client"), name, ["build"])
