"""Python's HTTP libraries through the proxy: urllib, requests, httpx, aiohttp, each in its own process.

All four show the phrase of a refusal: an agent's host reads the refused target from it.
"""

from __future__ import annotations

import dataclasses
import subprocess

import pytest

from tests.end_to_end.programs import python_program
from tests.end_to_end.road import INJECTED, LISTED, SECRET, UNLISTED, Road
from tests.support import answers

# Each prints the body, or the error as its users would see it. `sys.argv[1]` is the URL.
SCRIPTS = {
    "urllib": """
import urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())
except OSError as error:
    sys.exit(f"refused: {error}")
""",
    "requests": """
import requests
try:
    print(requests.get(sys.argv[1], timeout=30).text)
except requests.RequestException as error:
    sys.exit(f"refused: {error}")
""",
    "httpx": """
import httpx
try:
    print(httpx.get(sys.argv[1], timeout=30).text)
except httpx.HTTPError as error:
    sys.exit(f"refused: {error}")
""",
    "aiohttp": """
import asyncio, aiohttp
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get(sys.argv[1]) as response:
            print(await response.text())
try:
    asyncio.run(main())
except aiohttp.ClientError as error:
    sys.exit(f"refused: {error}")
""",
}
CA_NAMES = {"requests": "REQUESTS_CA_BUNDLE"}  # the others: SSL_CERT_FILE


@dataclasses.dataclass(frozen=True, slots=True)
class Library:
    name: str

    def get(self, road: Road, url: str) -> subprocess.CompletedProcess[str]:
        env = {CA_NAMES.get(self.name, "SSL_CERT_FILE"): str(road.ca_path)}
        return road.run(python_program(), "-c", "import sys" + SCRIPTS[self.name], url, env=env)


@pytest.fixture(params=SCRIPTS)
def library(request: pytest.FixtureRequest) -> Library:
    name = str(request.param)
    python_program(name)
    return Library(name)


def test_a_library_fetches_from_a_listed_host(road: Road, library: Library) -> None:
    road.origin.on("/page", answers.fixed(b"a page"))
    done = library.get(road, road.url(LISTED, "/page"))
    assert (done.stdout, done.stderr, done.returncode) == ("a page\n", "", 0)


def test_a_library_shows_the_phrase_of_a_refusal(road: Road, library: Library) -> None:
    before = road.connections
    done = library.get(road, road.url(UNLISTED))
    assert done.returncode == 1
    assert done.stderr.startswith("refused: ")
    # aiohttp puts the number elsewhere; the words behind it are what a host looks for.
    number, _, words = road.phrase().partition(" ")
    assert number in done.stderr
    assert words in done.stderr
    assert road.connections == before


def test_a_library_reaches_a_credential_rule_by_plain_http(inject_road: Road, library: Library) -> None:
    inject_road.origin.on("/v1/models", answers.fixed(b"[]"))
    done = library.get(inject_road, f"http://{INJECTED}/v1/models")
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)
    assert inject_road.credential == SECRET
    assert SECRET not in done.stdout
