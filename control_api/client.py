"""The control API from outside: a blocking client on the standard library, for verbs and agent hosts.

It goes to 127.0.0.1, never through a proxy, and follows no redirect; it shares control_api.models with the
server and nothing else. Next: models.py (the answers), routes.py (who gives them).
"""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from control_api.models import (
    AllowAnswer,
    ErrorAnswer,
    GrantList,
    GrantView,
    ReloadAnswer,
    RevokeAnswer,
    StatusView,
)

ADDRESS = "127.0.0.1"
# Longer than the longest wait after wrong tokens (1.6 s), shorter than a person's patience.
DEFAULT_TIMEOUT_S = 5.0
# Ten thousand grants are under 8 MiB. Whatever else listens there must not fill our memory.
ANSWER_LIMIT_BYTES = 16 * 1024 * 1024

_Model = TypeVar("_Model", bound=BaseModel)


class ControlUnreachable(Exception):
    """Nobody answers there, or it is no control API. The message says which."""


class ControlTokenWrong(Exception):
    """The control API does not know this token, or it cannot be sent at all."""


class ControlRefusedError(Exception):
    """The control API said no. ``error`` is its stable code, ``detail`` a line for a person."""

    def __init__(self, status: int, error: str, detail: str) -> None:
        super().__init__(f"{error}: {detail}")
        self.status = status
        self.error = error
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ControlClient:
    """``timeout_s`` bounds each wait for the network. Every call may raise each of the three errors above."""

    port: int
    token: str = field(repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S

    def __post_init__(self) -> None:
        # http.client would quote a line end with the token around it; servers trim blanks at the ends.
        sendable = self.token.isascii() and self.token.isprintable() and self.token == self.token.strip()
        if not self.token or not sendable:
            raise ControlTokenWrong("the control token must be printable ASCII without blanks at its ends")

    def allow(
        self,
        entry: str,
        *,
        ttl_s: float | None = None,
        max_uses: int | None = None,
        max_bytes_out: int | None = None,
        client: str | None = None,
        reason: str | None = None,
    ) -> AllowAnswer:
        """Grant an entry (`host`, `host:port`, `*.host`, …). The answer has an id when a limit was given."""
        asked = {
            "host": entry,
            "ttl_s": ttl_s,
            "max_uses": max_uses,
            "max_bytes_out": max_bytes_out,
            "client": client,
            "reason": reason,
        }
        given = {name: value for name, value in asked.items() if value is not None}
        return self._call("POST", "/allow", AllowAnswer, given)

    def grants(self) -> tuple[GrantView, ...]:
        return self._call("GET", "/grants", GrantList).grants

    def revoke(self, grant_id: str) -> RevokeAnswer:
        return self._call("DELETE", f"/grants/{quote(grant_id, safe='')}", RevokeAnswer)

    def status(self) -> StatusView:
        return self._call("GET", "/status", StatusView)

    def reload(self) -> ReloadAnswer:
        return self._call("POST", "/reload", ReloadAnswer)

    def _call(
        self, method: str, path: str, model: type[_Model], body: Mapping[str, object] | None = None
    ) -> _Model:
        headers = {"Authorization": f"Bearer {self.token}", "Connection": "close"}
        payload = None if body is None else json.dumps(body).encode()
        if payload is not None:
            headers["Content-Type"] = "application/json"
        status, text = self._exchange(method, path, payload, headers)
        try:
            if status == http.HTTPStatus.OK:
                return model.model_validate_json(text)
            problem = ErrorAnswer.model_validate_json(text)
        except ValidationError:
            raise ControlUnreachable(f"what listens on port {self.port} is no control API") from None
        if status == http.HTTPStatus.UNAUTHORIZED:
            raise ControlTokenWrong(problem.detail)
        raise ControlRefusedError(status, problem.error, problem.detail)

    def _exchange(
        self, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=self.timeout_s)
        try:
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
            return response.status, response.read(ANSWER_LIMIT_BYTES)
        except TimeoutError:
            why = f"no answer within {self.timeout_s:g} s"
        except OSError as error:
            why = error.strerror or type(error).__name__
        except http.client.HTTPException:
            why = "what listens there does not speak HTTP"
        finally:
            connection.close()
        raise ControlUnreachable(f"the control API on port {self.port} cannot be reached: {why}")
