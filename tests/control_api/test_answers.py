"""Answers: headers that every one carries, and texts that cannot forge a line."""

import json

import pytest

from control_api.answers import DETAIL_LIMIT, Refusal, answer, refusal_answer, shown
from control_api.models import AllowAnswer, HealthView


def test_every_answer_is_json_that_nobody_keeps_guesses_at_or_learns_a_version_from() -> None:
    for response in (answer(HealthView(status="ok")), refusal_answer(Refusal(403, "no", "because"))):
        assert dict(response.headers) == {
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Server": "egress-control",
            "Content-Type": "application/json",
        }


def test_an_answer_ends_its_line_but_for_the_one_that_hosts_compare() -> None:
    for response in (answer(HealthView(status="ok")), refusal_answer(Refusal(403, "no", "because"))):
        assert (response.text or "").endswith("}\n")
    assert (answer(AllowAnswer(allowed="a.example", ports="*")).text or "").endswith("}")


def test_a_refusal_is_two_texts_and_its_own_headers() -> None:
    response = refusal_answer(Refusal(405, "method-not-allowed", "use POST", (("Allow", "POST"),)))
    assert (response.status, response.headers["Allow"]) == (405, "POST")
    assert json.loads(response.text or "") == {"error": "method-not-allowed", "detail": "use POST"}


def test_fields_that_were_not_set_are_left_out_and_null_ones_are_not() -> None:
    assert answer(AllowAnswer(allowed="a.example", ports="*")).text == '{"allowed":"a.example","ports":"*"}'
    whole = answer(AllowAnswer(allowed="a.example", ports="*", id="g-1", expires_at=None)).text
    assert whole == '{"allowed":"a.example","ports":"*","id":"g-1","expires_at":null}'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain ä", "plain ä"),
        ("a\r\nb", "a\\r\\nb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u2028b\u202ec", "a\\u2028b\\u202ec"),
        ("\ud800", "\\ud800"),
        ("x" * 11, "x" * 7 + "..."),
        ("\x00" * 4, "\\x00\\x0..."),
    ],
)
def test_what_is_quoted_stays_on_one_printable_line(text: str, line: str) -> None:
    limit = 10 if len(text) in (4, 11) else 100
    assert shown(text, limit) == line
    assert len(shown(text, limit)) <= limit


def test_a_detail_is_capped_and_can_always_be_encoded() -> None:
    body = refusal_answer(Refusal(400, "bad-entry", "\ud800\n" * 10_000)).text or ""
    assert len(json.loads(body)["detail"]) <= DETAIL_LIMIT
