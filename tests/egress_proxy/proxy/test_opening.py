"""A CONNECT on its way to its upstream that ends early: what was taken is given back, what is spent is not.

Over a running data port, with a task for each client. The rest of a CONNECT: test_connection.py.
"""

from __future__ import annotations

from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided, Ended
from egress_proxy.core.seams import AuditUnavailable
from tests.support.data_port import DataPort
from tests.support.origins import EchoOrigin, closed_port
from tests.support.service_answers import connect_request


def test_a_dial_that_fails_gives_back_its_place_and_its_use() -> None:
    with closed_port() as closed, DataPort(relay="loop") as port:
        grant = port.grant(f"127.0.0.1:{closed}", max_uses=1)
        for _ in range(3):
            assert port.ask(connect_request(f"127.0.0.1:{closed}")).status == 502
        assert port.call(lambda: port.grants.snapshot().by_id[grant].uses_left) == 1
        assert port.call(lambda: len(port.table.places)) == 0
        assert port.log.of(Ended) == []


def test_what_cannot_be_recorded_is_not_opened_and_costs_nothing() -> None:
    def refusing(event: object) -> None:
        if isinstance(event, Decided) and event.reason is None:
            raise AuditUnavailable

    with EchoOrigin() as echo, DataPort(relay="loop") as port:
        grant = port.grant(echo.address, max_uses=1)
        port.log.refusing = refusing
        assert port.ask(connect_request(echo.address)).status == 503
        assert port.log.only(Decided).reason is Reason.AUDIT_UNAVAILABLE
        assert port.call(lambda: port.grants.snapshot().by_id[grant].uses_left) == 1
        assert port.call(lambda: len(port.table.places)) == 0
        echo.wait_for_end()
