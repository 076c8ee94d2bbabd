"""Answers in the words of HTTP: a model or a `Refusal` becomes a response. Sets every header of an answer.

No decisions and no request is read. Next: auth.py and routes.py (who refuse), models.py (the shapes).
"""

from dataclasses import dataclass

from aiohttp import web
from pydantic import BaseModel

from control_api.models import AllowAnswer, ErrorAnswer

# A detail is one line on a terminal; what it quotes may have been longer.
DETAIL_LIMIT = 500
# No CORS header, ever: a page of another origin shall not read an answer.
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Server": "egress-control",  # aiohttp's own would name its version and Python's
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """No. ``error`` is a stable code, ``detail`` says what to do; both are shown to the caller."""

    status: int
    error: str
    detail: str
    headers: tuple[tuple[str, str], ...] = ()


def answer(model: BaseModel) -> web.Response:
    """200 with the fields that were set: the drop-in answer of POST /allow has two, not four."""
    return _response(200, model)


def refusal_answer(refusal: Refusal) -> web.Response:
    detail = shown(refusal.detail, DETAIL_LIMIT)
    response = _response(refusal.status, ErrorAnswer(error=refusal.error, detail=detail))
    response.headers.update(refusal.headers)
    return response


def shown(text: str, limit: int) -> str:
    """The text on one printable line of at most ``limit`` characters: no forged lines, no lone surrogates."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _response(status: int, model: BaseModel) -> web.Response:
    # On a terminal the prompt starts a line of its own; hosts compare the answer of POST /allow to the byte.
    end = b"" if isinstance(model, AllowAnswer) else b"\n"
    body = model.model_dump_json(exclude_unset=True).encode() + end
    return web.Response(status=status, body=body, content_type="application/json", headers=_HEADERS)
