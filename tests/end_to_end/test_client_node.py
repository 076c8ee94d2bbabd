"""Node's fetch through the proxy: https, and plain http, which it sends as CONNECT host:80 too.

It uses the proxy variables only because NODE_USE_ENV_PROXY=1 is among what `env` prints. Of a
refusal it says little: neither number nor phrase is promised here.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.end_to_end.programs import node_program
from tests.end_to_end.road import INJECTED, LISTED, SECRET, UNLISTED, Road
from tests.support import answers
from tests.support.service import Service

FETCH = """
fetch(process.argv[1]).then(async (r) => console.log(r.status, await r.text()))
  .catch((error) => { console.log("failed", error.cause?.message ?? error.message); process.exit(1); });
"""


@pytest.fixture(scope="module")
def node() -> str:
    return node_program()


def fetch(road: Road, node: str, url: str) -> subprocess.CompletedProcess[str]:
    return road.run(node, "-e", FETCH, url, env={"NODE_EXTRA_CA_CERTS": str(road.ca_path)})


def doors(service: Service, target: str) -> list[tuple[str, str]]:
    """Method and door of each request for ``target`` that the service has logged."""
    lines = [json.loads(line) for line in service.stderr.text.splitlines()]
    decisions = [line for line in lines if line["kind"] == "decision" and line["target"] == target]
    return [(line["method"], line["door"]) for line in decisions]


def test_fetch_reaches_a_listed_host(road: Road, node: str) -> None:
    road.origin.on("/page", answers.fixed(b"a page"))
    done = fetch(road, node, road.url(LISTED, "/page"))
    assert (done.stdout, done.returncode) == ("200 a page\n", 0), done.stderr


def test_fetch_is_refused_an_unlisted_host(road: Road, node: str) -> None:
    before = road.connections
    done = fetch(road, node, road.url(UNLISTED))
    assert (done.stdout.split()[0], done.returncode) == ("failed", 1)
    assert road.connections == before


def test_a_plain_http_fetch_gets_to_a_credential_rule_by_connect(inject_road: Road, node: str) -> None:
    inject_road.origin.on("/v1/models", answers.fixed(b"[]"))
    done = fetch(inject_road, node, f"http://{INJECTED}/v1/models")
    assert (done.stdout, done.returncode) == ("200 []\n", 0), done.stderr
    assert inject_road.credential == SECRET
    seen = doors(inject_road.service, f"{INJECTED}:80")
    assert seen == [("CONNECT", "connect_inject"), ("GET", "connect_inject")]


def test_a_plain_http_fetch_to_another_host_is_refused(inject_road: Road, node: str) -> None:
    before = inject_road.connections
    done = fetch(inject_road, node, f"http://{UNLISTED}/")
    assert (done.stdout.split()[0], done.returncode) == ("failed", 1)
    assert inject_road.connections == before
