"""Bodies: bytes off the wire, bounded in size and time, then JSON of one strict reading, then a request.

No entry is parsed here: that is core/rules.py, called by routes.py. Next: models.py (the fields).
"""

import asyncio
import json
from typing import Any

from aiohttp import HttpVersion10, web
from pydantic import ValidationError

from control_api.answers import Refusal
from control_api.models import AllowRequest

# The largest useful request is under 1 KiB.
BODY_LIMIT_BYTES = 4096
# As long as a head may take: one write on loopback takes no time at all.
BODY_TIMEOUT_S = 5.0

_TOO_LARGE = Refusal(400, "body-too-large", f"a body has at most {BODY_LIMIT_BYTES} bytes")
_TOO_SLOW = Refusal(408, "body-timeout", f"the whole body must arrive within {BODY_TIMEOUT_S:g} s")
_CUT_OFF = Refusal(400, "bad-request", "the body is cut off, or its framing is broken")
_EXPECTATION = Refusal(417, "expectation-failed", "only 100-continue can be expected")


async def read_body(request: web.BaseRequest) -> bytes | Refusal:
    """The whole body; never holds more than the limit and one chunk."""
    if (request.content_length or 0) > BODY_LIMIT_BYTES:
        return _TOO_LARGE
    expected = request.headers.get("Expect", "100-continue").lower()
    if expected != "100-continue":
        return _EXPECTATION
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            if "Expect" in request.headers and request.version > HttpVersion10:
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return await _collect(request)
    except TimeoutError:
        return _TOO_SLOW
    except (web.RequestPayloadError, ConnectionError):
        return _CUT_OFF


async def _collect(request: web.BaseRequest) -> bytes | Refusal:
    body = bytearray()
    while chunk := await request.content.readany():
        body += chunk
        if len(body) > BODY_LIMIT_BYTES:
            return _TOO_LARGE
    return bytes(body)


def parse_allow(body: bytes) -> AllowRequest | Refusal:
    """Read the body of POST /allow. Nothing is converted: what is not exactly right is refused."""
    try:
        return AllowRequest.model_validate(_read_json(body))
    except ValidationError as error:
        return Refusal(400, "bad-field", _first_fault(error))
    except RecursionError:
        return Refusal(400, "bad-json", "the body is nested too deeply")
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are kinds of it
        return Refusal(400, "bad-json", f"the body is not a JSON object in UTF-8: {error}")


def _read_json(body: bytes) -> Any:
    # The first call wins in one reader and the last in another: `{"host": "a", "host": "b"}` is no request.
    return json.loads(body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return fields


def _no_constant(name: str) -> float:
    # Python's reader takes NaN and Infinity, which are no JSON (RFC 8259 6).
    raise ValueError(f"{name} is no JSON number")


def _first_fault(error: ValidationError) -> str:
    """One fault, without the value: it may be anything. Names of fields are shown."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, fault["loc"]))
    return f"{place}: {fault['msg']}" if place else fault["msg"]
