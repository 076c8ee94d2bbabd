"""Paths: dot segments are found wherever an independent decoder finds them, so no prefix can be left.

Tables of cases are in ../egress_proxy/core/test_request.py and test_access.py.
"""

from urllib.parse import unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.access import InjectRoute
from egress_proxy.core.host import Name
from egress_proxy.core.request import path_has_dot_segments

PIECES = [b".", b"..", b"%2e", b"%2E", b"/", b"//", b"\\", b"%5c", b"%5C", b"%2f", b"%2F", b";", b"%3b",
          b"%3B", b"?", b"%", b"%25", b"2e", b"%252e", b"a", b"v1", b"%41", b"%3f", b"#", b"%00"]  # fmt: skip
paths = st.lists(st.sampled_from(PIECES), max_size=10).map(lambda pieces: b"/" + b"".join(pieces))


def climbs(path: bytes) -> bool:
    """By the standard library's decoder, with what servers take for a separator."""
    decoded = unquote_to_bytes(path.split(b"?")[0]).replace(b"\\", b"/")
    return any(segment.split(b";")[0] in (b".", b"..") for segment in decoded.split(b"/"))


@given(paths | st.binary(max_size=30))
def test_dot_segments_are_found_as_an_independent_decoder_finds_them(path: bytes) -> None:
    assert path_has_dot_segments(path) is climbs(path)


def resolved(path: bytes) -> list[bytes]:
    """Where a server that decodes once and then resolves dot segments ends up."""
    stack: list[bytes] = []
    for segment in unquote_to_bytes(path.split(b"?")[0]).replace(b"\\", b"/").split(b"/"):
        bare = segment.split(b";")[0]
        if bare == b"..":
            stack = stack[:-1]
        elif bare not in (b"", b"."):
            stack.append(segment)
    return stack


@given(paths, st.sampled_from([b"/v1", b"/v1/", b"/a/v1"]))
def test_an_admitted_path_stays_below_its_prefix_however_it_is_resolved(path: bytes, prefix: bytes) -> None:
    route = InjectRoute("api", Name("api.example"), paths=(prefix,))
    for asked in (path, prefix + path):
        if route.admits_path(asked):
            wanted = prefix.strip(b"/").split(b"/")
            assert resolved(asked)[: len(wanted)] == wanted
