"""curl through the proxy: https, plain http to a credential rule, and a tunnel to a plain server (-p).

It shows the phrase of a refusal with -v alone; without, only the number.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import StartProvider
from tests.end_to_end.programs import system_program
from tests.end_to_end.road import (
    INJECTED,
    LISTED,
    SECRET,
    UNLISTED,
    Road,
    proxy_environment,
    run_client,
)
from tests.support import answers
from tests.support.service import Service

PROXY_SAID_NO = 56  # curl(1): failure in receiving network data, here the answer to CONNECT


@pytest.fixture(scope="module")
def curl() -> str:
    return system_program("curl")


def test_curl_fetches_from_a_listed_host(road: Road, curl: str) -> None:
    road.origin.on("/page", answers.fixed(b"a page"))
    done = road.run(curl, "-sS", road.url(LISTED, "/page"), env={"CURL_CA_BUNDLE": str(road.ca_path)})
    assert (done.stdout, done.stderr, done.returncode) == ("a page", "", 0)


def test_curl_is_refused_an_unlisted_host_and_shows_the_number(road: Road, curl: str) -> None:
    before = road.connections
    done = road.run(curl, "-sS", road.url(UNLISTED), env={"CURL_CA_BUNDLE": str(road.ca_path)})
    assert (done.stdout, done.returncode) == ("", PROXY_SAID_NO)
    assert "403" in done.stderr
    assert road.connections == before


def test_curl_shows_the_phrase_when_it_is_asked_to(road: Road, curl: str) -> None:
    done = road.run(curl, "-v", road.url(UNLISTED))
    assert f"< HTTP/1.1 {road.phrase()}" in done.stderr.splitlines()


def test_curl_p_tunnels_plain_http_to_a_listed_host(
    curl: str, start_provider: StartProvider, start_service: Callable[..., Service], tmp_path: Path
) -> None:
    plain, unlisted = start_provider(), start_provider()
    plain.otherwise(answers.fixed(b"plain"))
    service = start_service("--allow", plain.address)
    env = proxy_environment(service.proxy_port)
    done = run_client([curl, "-sS", "-p", f"http://{plain.address}/"], env, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("plain", "", 0)
    assert plain.only_request.target == "/"
    refused = run_client([curl, "-sS", "-p", f"http://{unlisted.address}/"], env, tmp_path)
    assert (refused.stdout, refused.returncode) == ("", PROXY_SAID_NO)
    assert "403" in refused.stderr
    assert not unlisted.connections


def test_curl_reaches_a_credential_rule_by_plain_http(inject_road: Road, curl: str) -> None:
    inject_road.origin.on("/v1/models?q=a%2Fb", answers.fixed(b"[]"))
    url = f"http://{INJECTED}/v1/models?q=a%2Fb"
    done = inject_road.run(curl, "-sS", "-H", "Authorization: Bearer of-the-agent", url)
    assert (done.stdout, done.stderr, done.returncode) == ("[]", "", 0)
    assert inject_road.credential == SECRET


def test_curl_prints_why_plain_http_to_another_host_is_refused(inject_road: Road, curl: str) -> None:
    before = inject_road.connections
    done = inject_road.run(curl, "-sS", "-w", "%{http_code} %{errormsg}", f"http://{UNLISTED}/")
    assert '"error": "blocked-by-policy"' in done.stdout
    assert done.stdout.endswith("}\n403 ")
    assert inject_road.connections == before
