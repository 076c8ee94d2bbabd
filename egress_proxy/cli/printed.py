"""What --json prints, as models: their schemas are what scripts may rely on.

Answers of the control API are printed as control_api/models.py has them. Next: output.py (prints).
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Printed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CheckPrinted(_Printed):
    """`check --json`. ``reason`` and ``hint`` are null where the answer is allow."""

    target: str
    decision: Literal["allow", "deny"]
    reason: str | None
    rule: str | None
    door: str
    hint: str | None


class MatchPrinted(_Printed):
    """One rule of `classify --json`, and the text that it matched."""

    id: str
    severity: Literal["critical", "warning"]
    category: str
    description: str
    text: str


class ClassifyPrinted(_Printed):
    """`classify --json`. A hint: `safe` says that no rule matched."""

    severity: Literal["critical", "warning", "safe"]
    matched_rules: list[str]
    matches: list[MatchPrinted]


class SettingPrinted(_Printed):
    """One setting. ``where``: a flag, a variable's name, or file:line.

    A secret's value is `***`, and ``secret_source`` says where it is read.
    """

    key: str
    value: str | int | float | bool | list[str] | None
    source: Literal["flag", "variable", "file", "default"]
    where: str
    secret_source: str | None = None


class SettingsPrinted(_Printed):
    """`config show --json`. ``file``: the settings file that was read."""

    file: str | None
    settings: list[SettingPrinted]


class ConfigChecked(_Printed):
    """`config check --json`, when nothing is wrong."""

    ok: Literal[True]
    file: str | None
    warnings: list[str]
