"""Seatbelt profiles of random policies: what holds for each, and that no text of a policy adds a rule.

Tables of cases are in ../egress_proxy/sandbox/test_seatbelt.py; the evaluator is ../support/sbpl.py.
"""

import posixpath
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from egress_proxy.core.host import Target
from egress_proxy.core.rules import Rule
from egress_proxy.sandbox.host_list import read_host_list
from egress_proxy.sandbox.obeyed_names import PROTECTED_NAMES
from egress_proxy.sandbox.seatbelt import build_seatbelt_profile
from egress_proxy.sandbox.secret_places import SECRET_NAMES
from tests.properties.strategies import entry_texts, mutated, rules, targets
from tests.support.sbpl import Form, Profile, Regex, Text, Word, read_forms

NAMES = ["a", "b", "p.q", "x y", "(c)", "[d]", "e+f", "$h", "^", "g|h", "{2}", ";", "#", "'", "jörg", "*",
         "?", ".git", ".claude", "-", "%"]  # fmt: skip
PIECES = ['"', '")', "\\", "\n", "\r", "\0", "(", ")", ";", '#"', "..", "/", "//", "\u2028", "\udc80",
          '")(allow default)', "\n(allow default)", " "]  # fmt: skip
WRITES = ["data", "create", "unlink", "mode", "owner", "flags", "times", "xattr", "setugid"]
writes = st.sampled_from([f"file-write-{kind}" for kind in WRITES])

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
below = st.lists(st.sampled_from([*NAMES, "n\nl"]), max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
roots = st.lists(paths, max_size=3)
host_lists = st.lists(rules().map(str), max_size=4)
policies = st.fixed_dictionaries(
    {"writable_roots": roots, "scratch": roots, "allowed_hosts": st.none() | host_lists},
    optional={"network": st.booleans(), "allow_resolver": st.booleans(), "protect": st.booleans(),
              "home": st.just("/Users/u"), "interactive": st.booleans()},
)  # fmt: skip


def is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


@st.composite
def spellings(draw: st.DrawFn, name: str) -> str:
    """A name as a file system that ignores case would take it for the same."""
    for plain, other in (("fi", "\ufb01"), ("k", "\u212a"), ("s", "\u017f")):
        if draw(st.booleans()):
            name = name.replace(plain, other)
    return "".join(draw(st.sampled_from([c, c.upper()])) if c.isascii() else c for c in name)


@given(policies, paths, below, writes)
def test_nothing_is_written_outside_the_roots(
    policy: dict[str, Any], folder: str, rest: str, operation: str
) -> None:
    path = folder + rest
    assume(not any(is_in(path, root) for root in (*policy["writable_roots"], *policy["scratch"])))
    assert not Profile(build_seatbelt_profile(**policy)).allows(operation, path)


# Not in a git folder, where a part of the root is obeyed.
@given(policies, paths.filter(lambda path: ".git" not in path))
def test_ordinary_names_in_a_root_are_written(policy: dict[str, Any], root: str) -> None:
    read = Profile(build_seatbelt_profile(**{**policy, "writable_roots": [root], "scratch": []}))
    for name in ("x", "src/main.py", "jörg\n/x"):
        assert read.allows("file-write-create", f"{root}/{name}")
        assert read.allows("file-write-unlink", f"{root}/{name}")


@given(paths, below, st.sampled_from(PROTECTED_NAMES), st.data(), writes)
def test_protected_names_are_held_at_any_depth_in_any_spelling(
    root: str, folder: str, name: str, data: st.DataObject, operation: str
) -> None:
    read = Profile(build_seatbelt_profile(writable_roots=[root]))
    parts = data.draw(spellings(name)).split("/")
    for count in range(1, len(parts) + 1):
        assert not read.allows(operation, f"{root}{folder}/{'/'.join(parts[:count])}")
    assert not read.allows(operation, f"{root}{folder}/{'/'.join(parts)}{data.draw(below)}")


@given(paths, below, below, st.sampled_from(SECRET_NAMES))
def test_what_is_masked_is_neither_read_nor_moved(root: str, way: str, rest: str, name: str) -> None:
    assume("\n" not in way)
    masked = f"{root}{way}/key"
    read = Profile(build_seatbelt_profile(writable_roots=[root], masks=[masked], home="/Users/u"))
    for path in (masked + rest, f"/Users/u/{name}{rest}"):
        for operation in ("file-read-data", "file-read-metadata", "file-write-data"):
            assert not read.allows(operation, path)
    folder = masked
    while is_in(folder, root):
        assert not read.allows("file-write-unlink", folder)
        folder = posixpath.dirname(folder)


@given(st.integers(1, 65535), targets, st.sampled_from(["tcp", "udp"]), roots, st.booleans())
def test_with_a_proxy_nothing_else_is_reached(
    port: int, target: Target, protocol: str, writable: list[str], protect: bool
) -> None:
    read = Profile(build_seatbelt_profile(proxy_port=port, writable_roots=writable, protect=protect))
    host = str(target.host)
    reached = host in {"127.0.0.1", "::1"} and target.port == port and protocol == "tcp"
    assert read.connects(host, target.port, protocol) is reached
    assert read.connects("127.0.0.1", port)


@given(st.lists(rules(), max_size=4), targets, st.sampled_from(["tcp", "udp"]))
def test_a_closed_list_opens_the_ports_of_its_entries(
    listed: list[Rule], target: Target, protocol: str
) -> None:
    entries = [str(rule) for rule in listed]
    read = Profile(build_seatbelt_profile(allowed_hosts=entries))
    local = str(target.host) in {"127.0.0.1", "::1"}
    opened = any(
        (not endpoint.loopback or local) and (endpoint.ports is None or target.port in endpoint.ports)
        for endpoint in read_host_list(entries)
    )
    assert read.connects(str(target.host), target.port, protocol) is (opened and protocol == "tcp")


def shape(form: Form) -> object:
    """A form without its strings: what a policy's texts must not change."""
    match form:
        case Word(word):
            return word
        case Text() | Regex():
            return type(form).__name__
        case list():
            return tuple(map(shape, form))


def shapes(profile: str) -> list[object]:
    return [shape(form) for form in read_forms(profile)]


def profile_or_refusal(**policy: Any) -> str | ValueError:
    try:
        return build_seatbelt_profile(**policy)
    except ValueError as refusal:
        return refusal


path_texts = st.one_of(
    st.text(max_size=20),
    st.text(max_size=20).map(lambda text: f"/{text}"),
    mutated(paths, PIECES),
)


@given(path_texts, st.sampled_from(["writable_roots", "scratch", "masks"]))
def test_no_path_adds_a_rule(path: str, field: str) -> None:
    profile = profile_or_refusal(**{field: [path]})
    if isinstance(profile, ValueError):
        assert repr(path) in str(profile)
        assert str(profile).isprintable()
    else:
        Profile(profile)
        assert shapes(profile) == shapes(str(profile_or_refusal(**{field: ["/x"]})))


@given(path_texts)
def test_no_home_adds_a_rule(path: str) -> None:
    profile = profile_or_refusal(home=path, writable_roots=["/x/y"])
    if not isinstance(profile, ValueError):
        Profile(profile)
        assert shapes(profile) == shapes(build_seatbelt_profile(home="/h", writable_roots=["/x/y"]))


@given(entry_texts)
def test_no_entry_adds_more_than_its_ports(entry: str) -> None:
    profile = profile_or_refusal(allowed_hosts=[entry])
    if isinstance(profile, ValueError):
        assert repr(entry) in str(profile)
        return
    (endpoint,) = read_host_list([entry])
    ports = ["*"] if endpoint.ports is None else list(map(str, endpoint.ports))
    # Like an entry whose text is harmless, of the same kind.
    like = [f"{'localhost' if endpoint.loopback else 'a.example'}:{port}" for port in ports]
    Profile(profile)
    assert read_forms(profile) == read_forms(build_seatbelt_profile(allowed_hosts=like))
