"""The request of POST /allow takes nothing that is not exactly right; answers may grow."""

import math

import pytest
from pydantic import ValidationError

from control_api.models import (
    CLIENT_LIMIT,
    COUNT_LIMIT,
    REASON_LIMIT,
    TTL_LIMIT_S,
    AllowAnswer,
    AllowRequest,
    GrantList,
)
from egress_proxy.core.rules import ENTRY_LIMIT, Suffix, parse_rule

LIMITS = ("ttl_s", "max_uses", "max_bytes_out")
NUMBERS_THAT_ARE_NONE = ["60", "", True, False, None, [], {}, [5], 0, -1, -0.0, math.nan, math.inf, 10**400]


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", NUMBERS_THAT_ARE_NONE)
def test_a_limit_is_a_number_above_zero_and_nothing_is_taken_for_one(name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        AllowRequest.model_validate({"host": "a.example", name: value})


@pytest.mark.parametrize("name", ["max_uses", "max_bytes_out"])
@pytest.mark.parametrize("value", [5.0, 1.5, COUNT_LIMIT + 1])
def test_a_count_is_a_whole_number_that_json_keeps_exact(name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        AllowRequest.model_validate({"host": "a.example", name: value})


@pytest.mark.parametrize("value", [TTL_LIMIT_S + 1, 1e308, 10**30])
def test_a_time_over_a_year_is_a_mistake_of_units(value: object) -> None:
    with pytest.raises(ValidationError):
        AllowRequest.model_validate({"host": "a.example", "ttl_s": value})


@pytest.mark.parametrize(
    "value", [None, 5, True, ["a.example"], {"a": 1}, b"a.example", "\ud800", "a" * 5000]
)
def test_a_host_is_a_text_no_longer_than_any_entry(value: object) -> None:
    with pytest.raises(ValidationError):
        AllowRequest.model_validate({"host": value})


def test_the_longest_entry_fits() -> None:
    name = ".".join(["a" * 63] * 3 + ["a" * 61])
    assert len(name) == 253
    assert len(f"**.{name}.:65535") == ENTRY_LIMIT
    parse_rule(f"**.{name}.:65535", lambda _: Suffix.NONE)
    assert AllowRequest(host=f"**.{name}.:65535").host.endswith(":65535")


@pytest.mark.parametrize("name", ["reason", "client"])
@pytest.mark.parametrize(
    "value", ["a\nb", "\r", "\x1b[2J", "a\u2028b", "\u202e", "\x00", "\x7f", "\ud800", 5, None]
)
def test_a_reason_and_a_client_are_one_printable_line(name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        AllowRequest.model_validate({"host": "a.example", name: value})


@pytest.mark.parametrize(("name", "limit"), [("reason", REASON_LIMIT), ("client", CLIENT_LIMIT)])
def test_a_reason_and_a_client_have_a_longest(name: str, limit: int) -> None:
    AllowRequest.model_validate({"host": "a.example", name: "ä" * limit})
    with pytest.raises(ValidationError):
        AllowRequest.model_validate({"host": "a.example", name: "ä" * (limit + 1)})


@pytest.mark.parametrize("fields", [{}, {"host": "a.example", "hosts": []}, {"Host": "a.example"}])
def test_fields_are_these_and_no_others(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AllowRequest.model_validate(fields)


def test_nothing_is_trimmed_and_a_whole_number_may_be_a_time() -> None:
    asked = AllowRequest.model_validate({"host": " A.example ", "ttl_s": 5})
    assert (asked.host, asked.ttl_s) == (" A.example ", 5.0)


def test_an_answer_of_a_newer_server_is_understood() -> None:
    newer = '{"allowed":"a.example","ports":"443","id":"g-1","expires_at":null,"new":[1]}'
    assert AllowAnswer.model_validate_json(newer) == AllowAnswer(allowed="a.example", ports="443", id="g-1")
    assert GrantList.model_validate_json('{"grants":[],"more":1}').grants == ()
