"""Calls of the control API with exactly the headers that a test says, and what they must not change.

Used by test_case_control.py and test_case_control_pages.py.
"""

from __future__ import annotations

from tests.end_to_end.case_parts import NOT_LISTED, connect_head, refusal
from tests.support.http import Response, request_bytes
from tests.support.service import TOKEN, Service

JSON = ("Content-Type", "application/json")
BEARER = ("Authorization", f"Bearer {TOKEN}")
WANTED = b'{"host":"wanted.example"}'


def own_host(service: Service) -> tuple[str, str]:
    return ("Host", f"127.0.0.1:{service.control_port}")


def call(
    service: Service,
    *headers: tuple[str, str],
    method: str = "POST",
    path: str = "/allow",
    body: bytes = WANTED,
    timeout_s: float = 5,
) -> Response:
    """One call with exactly these headers."""
    return service.control_request(request_bytes(method, path, headers, body), timeout_s)


def nothing_is_granted(service: Service) -> bool:
    no_grants = service.control("GET", "/grants").json() == {"grants": []}
    return no_grants and refusal(service, connect_head("wanted.example:443")) == NOT_LISTED
