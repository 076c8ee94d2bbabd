"""Input for the properties: hosts, targets, entries and heads from alphabets so small that they collide.

No assertions. Mutations put in what has split other parsers: look-alike dots, blanks, brackets, escapes.
"""

from ipaddress import IPv4Address, IPv6Address

from hypothesis import strategies as st

from egress_proxy.core.host import Host, Name, Target, parse_host
from egress_proxy.core.rules import Ports, Rule, Scope

LABELS = ["a", "b", "ok", "wild", "x-y", "_s", "0", "xn--bcher-kva", "a" * 63]
TOP_LABELS = ["example", "test", "x1", "1x", "localhost"]
SPECIAL = ["metadata.google.internal", "metadata", "localhost", "ok.example", "a.ok.example", "wild.example"]

names = st.one_of(
    st.sampled_from(SPECIAL),
    st.builds(
        lambda labels, top: ".".join([*labels, top])[-253:].lstrip("."),
        st.lists(st.sampled_from(LABELS), max_size=5),
        st.sampled_from(TOP_LABELS),
    ),
).map(Name)

inner_ipv4 = st.one_of(
    st.sampled_from(["127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "8.8.8.8", "192.0.2.1"]).map(
        IPv4Address
    ),
    st.integers(0, 2**32 - 1).map(IPv4Address),
)
EMBEDDINGS = [0, 0xFFFF << 32, 0x64FF9B << 96, 0x64FF9B0001 << 80, 0xFFFF << 48, 0x20010DB8 << 96]
ipv6 = st.one_of(
    st.integers(0, 2**128 - 1).map(IPv6Address),
    st.builds(lambda outer, v4: IPv6Address(outer | int(v4)), st.sampled_from(EMBEDDINGS), inner_ipv4),
    st.builds(lambda v4: IPv6Address((0x2002 << 112) | (int(v4) << 80)), inner_ipv4),
    st.builds(lambda v4: IPv6Address((0x20010000 << 96) | (int(v4) ^ 0xFFFFFFFF)), inner_ipv4),
    st.sampled_from(["::1", "::", "fe80::1", "fc00::1", "ff02::1", "fd00:ec2::254"]).map(IPv6Address),
)
addresses = st.one_of(inner_ipv4, ipv6)
# What a mapped literal becomes is the parser's business, so hosts come out of it.
hosts: st.SearchStrategy[Host] = st.one_of(
    names,
    inner_ipv4,
    ipv6.map(lambda address: parse_host(f"[{address}]")),
)
ports = st.one_of(st.sampled_from([80, 443, 22, 8080]), st.integers(1, 65535))
targets = st.builds(Target, hosts, ports)

clients = st.sampled_from(["anonymous", "build", "guest"])
# Single ports that targets often have, and any other now and then.
port_sets = st.sampled_from([Ports.WEB, Ports.ANY, Ports.ANY, 80, 443, 8080, None]).flatmap(
    lambda chosen: ports if chosen is None else st.just(chosen)
)


# So few that entries, grants, routes and targets are mostly about the same hosts.
few_hosts: st.SearchStrategy[Host] = st.sampled_from(
    ["ok.example", "a.ok.example", "b.a.ok.example", "wild.example", "localhost", "127.0.0.1",
     "[64:ff9b::7f00:1]", "192.0.2.1", "[::1]", "metadata.google.internal", "169.254.169.254"]
).map(parse_host)  # fmt: skip
few_ports = st.sampled_from([80, 443, 8080])


@st.composite
def rules(draw: st.DrawFn, among: st.SearchStrategy[Host] = hosts, *, web: bool = True) -> Rule:
    """An entry as parse_rule makes it; ``web`` False: as for deny entries, which never mean 80 and 443."""
    host = draw(among)
    wide = isinstance(host, Name) and "." in host.text
    scope = draw(st.sampled_from(list(Scope))) if wide else Scope.EXACT
    allowed = draw(port_sets)
    if allowed is Ports.WEB and not web:
        allowed = Ports.ANY
    client = draw(st.sampled_from([None, None, None, "anonymous", "build", "guest"]))
    return Rule(scope, host, allowed, draw(st.booleans()), client)


NASTY = [".", "..", ":", "::", "[", "]", "%", "%25", "@", "/", "?", "#", "\\", ",", "*", "**.", '"', "'", " ",
         "\t", "\r", "\n", "\r\n", "\x00", "\x7f", "\x85", "\xa0", "\xad", "\u3002", "\uff0e", "\uff61",
         "\uff11", "\u0661", "\u212a", "\u0130", "\u200b", "\u2028", "\ud800", "-", "_", "0", "0x", "+",
         "443", "https://", "%2e", "xn--", "::ffff:", "1.2.3.4", "evil.test", "A", "Z"]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, texts: st.SearchStrategy[str], pieces: list[str]) -> str:
    """A text with up to four cuts, insertions, repetitions or changes of case."""
    text = draw(texts)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 3)))
        middle = text[start:end]
        piece = draw(st.sampled_from(["", middle * 2, middle.swapcase(), *pieces]))
        text = text[:start] + piece + text[end:]
    return text


target_texts = st.one_of(
    st.text(max_size=40),
    st.binary(max_size=40).map(lambda raw: raw.decode("latin-1")),
    targets.map(str),
    mutated(targets.map(str), NASTY),
)
entry_texts = st.one_of(target_texts, rules().map(str), mutated(rules().map(str), NASTY))

METHODS = ["GET", "POST", "CONNECT", "HEAD", "OPTIONS", "G@T", "get", "!#$%&'*+.^_`|~"]
REQUEST_TARGETS = ["/", "/a?b", "*", "ok.example:443", "http://ok.example/x", "http://a b/", "/\xe9"]
HEADER_LINES = ["Host: ok.example", "host: evil.test", "Host:", "Content-Length: 0", "Content-Length: 5",
                "content-length:\t5 ", "Content-Length: 05", "Content-Length: 6", "Content-Length: +5",
                "Content-Length: 5, 5", "Content-Length:", "Content-Length: 18446744073709551617",
                "Transfer-Encoding: chunked", "transfer-encoding: Chunked",
                "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity",
                "Transfer-Encoding :chunked", "X-Y: a\tb  c ", "X:", "X: \xe9\xff", "X: \x01", " X: folded",
                "no colon", ": empty", "Connection: close, x", "Expect: 100-continue", "Upgrade: websocket",
                "X: a\rb", "X: a\nb: c"]  # fmt: skip
HEAD_PIECES = ["\r\n", "\n", "\r", "\r\n ", "\r\n\t", " ", "\t", ":", "\x00", "\x7f", "\xa0", "\r\n\r\n",
               "HTTP/1.1", "HTTP/1.0", "Host: a\r\n", "Content-Length: 5\r\n",
               "Transfer-Encoding: chunked\r\n"]  # fmt: skip

FRAMINGS = [
    [],
    ["Content-Length: 5"],
    ["content-length:\t7 ", "Content-Length: 7"],
    ["Transfer-Encoding: chunked"],
]
HARMLESS = ["X-Y: a\tb  c ", "X:", "X: \xe9\xff", "Connection: close, x", "Expect: 100-continue", "x-y: z"]


def _head(method: str, target: str, version: str, *lines: list[str]) -> str:
    return "\r\n".join([f"{method} {target} {version}", *(line for some in lines for line in some), "", ""])


good_heads = st.builds(
    _head,
    st.sampled_from(["GET", "POST", "CONNECT", "HEAD", "get", "!#$%&'*+.^_`|~"]),
    st.sampled_from(["/", "/a?b", "*", "ok.example:443", "http://ok.example/x"]),
    st.sampled_from(["HTTP/1.1", "HTTP/1.0"]),
    st.sampled_from([[], ["Host: ok.example"], ["host:"]]),
    st.sampled_from(FRAMINGS),
    st.lists(st.sampled_from(HARMLESS), max_size=3),
)
doubtful_heads = st.builds(
    _head,
    st.sampled_from(METHODS),
    st.sampled_from(REQUEST_TARGETS),
    st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/1.1", "HTTP/2.0"]),
    st.lists(st.sampled_from(HEADER_LINES), max_size=6),
)
heads = st.one_of(
    good_heads,
    doubtful_heads,
    mutated(good_heads, HEAD_PIECES),
    mutated(doubtful_heads, HEAD_PIECES),
).map(lambda text: text.encode("latin-1", "replace"))
