"""In which line a key stands, through the ways in which TOML lets it be written."""

import pytest

from egress_proxy.settings.origins import Key
from egress_proxy.settings.toml_lines import find_lines, line_of

TEXT = '''\
# bind = "not here"
bind = "127.0.0.1:1" # nor: relay = 1
"relay" = "loop"
tls.require_sni = true

[[allow]]
host = "a.example" # [limits]
[[allow]]
  host = "b.example"
  reason = """
[control]
port = 5
"""

[limits]
tunnels = 5
'head_bytes' = 6

deny = [
  "c.example",
  "[limits]",
]
hidden = 7
[ audit ]
path = "x"
[[inject]]
name = "a"
[inject.more]
deep = 1
'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("bind",), 2),
        (("relay",), 3),
        (("tls", "require_sni"), 4),
        (("tls",), 4),
        (("allow", 0), 6),
        (("allow", 0, "host"), 7),
        (("allow", 1, "host"), 9),
        (("allow", 1, "reason"), 10),
        (("limits",), 15),
        (("limits", "tunnels"), 16),
        (("limits", "head_bytes"), 17),
        (("limits", "deny"), 19),
        (("limits", "deny", 1), 19),
        (("limits", "hidden"), 23),
        (("audit", "path"), 25),
        (("inject", 0, "name"), 27),
        (("inject", 0, "more", "deep"), 29),
        (("limits", "missing"), 15),
        (("allow", 1, "client"), 8),
        (("control", "port"), None),
        (("missing",), None),
    ],
)
def test_the_line_of_a_key(key: Key, line: int | None) -> None:
    assert line_of(key, find_lines(TEXT)) == line


@pytest.mark.parametrize("text", ["", "=", "[", "[[]]", '"', "a.", '"""', "\n\n", "[a]b]\n=", "a = ['"])
def test_text_that_is_no_toml_is_searched_without_a_fault(text: str) -> None:
    find_lines(text)
