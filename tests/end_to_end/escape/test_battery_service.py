"""A running service's control port, attach socket and neighbours are out of a sandbox's reach."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from tests.end_to_end.escape.bench import Order
from tests.end_to_end.escape.places import Place, this_user
from tests.end_to_end.escape.sandboxes import Form
from tests.support.program import REPOSITORY
from tests.support.service import TOKEN, Service

pytestmark = [pytest.mark.usefixtures("bwrap"), pytest.mark.timeout(120)]

OUT_OF_REACH = (
    "attach_from_inside",
    "connect_address_race",
    "tcp_control_with_token",
    "tcp_metadata_address",
    "tcp_other_host_proxy_port",
    "tcp_second_service",
    "unix_path_connect",
)
PRINTED = ("/usr/bin/env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-P", "-m", "egress_proxy")


@pytest.fixture(scope="module")
def services() -> Iterator[tuple[Service, Service]]:
    with Service("--allow", "ok.example", token=TOKEN) as service, Service("--allow", "b.example") as second:
        yield service, second


@pytest.fixture
def around(services: tuple[Service, Service]) -> Order:
    """A battery whose proxy is the first of two services, and whose ports are theirs."""
    service, second = services
    ports = {"proxy": service.proxy_port, "control": service.control_port, "second": second.proxy_port}
    only = (*OUT_OF_REACH, "control_proxy", "env_inherits_token", "proc_environ_scan")
    return Order(
        "",
        through_proxy=True,
        only=only,
        attach=service.attach_path,
        token=TOKEN,
        ports=ports,
        program=PRINTED,
    )


def refused(verdicts: Mapping[str, str]) -> dict[str, str]:
    """Those that the kernel refused, seen from inside: nobody listens there, or it may not be."""
    return {name: line for name, line in verdicts.items() if line.startswith("OSError")}


@pytest.mark.parametrize("form", [Form.PORTABLE, Form.INSIDE, Form.PRINTED])
@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
def test_only_its_own_listener_is_within_reach(
    place: Place, around: Order, backend: str, form: Form, services: tuple[Service, Service]
) -> None:
    verdicts = place.run(replace(around, backend=backend, form=form), this_user())
    assert verdicts["ok"].keys() == {"control_proxy"}
    assert verdicts["blocked"].keys() == set(around.only) - {"control_proxy"}
    silent = {"connect_address_race", "env_inherits_token", "proc_environ_scan"}
    assert refused(verdicts["blocked"]).keys() == set(around.only) - {"control_proxy"} - silent
    assert services[0].control("GET", "/status").status == 200  # the same token, from outside
