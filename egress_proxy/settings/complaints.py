"""What pydantic finds wrong, as one line: the key as it was written, what is allowed, and where.

Values are never quoted: a secret may stand where its source belongs. Next: load.py (who asks),
scalars.py and tree.py (the words for what is allowed).
"""

import difflib
from collections.abc import Callable, Iterator
from typing import get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from egress_proxy.settings.origins import Key, Origin, SettingsError, Source, key_text
from egress_proxy.settings.short_keys import SHORT_KEYS
from egress_proxy.settings.tree import Settings

Model = type[BaseModel]
OriginOf = Callable[[Key], Origin]


def complaint(error: ValidationError, origin_of: OriginOf) -> SettingsError:
    """The first thing that is wrong. Unknown keys go first: one may be why another is missing."""
    details = error.errors(include_url=False, include_input=False)
    first = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    key = first["loc"]
    origin = origin_of(key)
    if first["type"] == "extra_forbidden":
        return _unknown(key, origin)
    if first["type"] == "missing":
        where = origin_of(key[:-1])
        return where.error(key[:-1], f"has no {key[-1]}")
    return origin.error(key, _predicate(first))


def _predicate(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    allowed = _allowed(detail["loc"])
    return f"must be {allowed}" if allowed else "cannot be used"


def _unknown(key: Key, origin: Origin) -> SettingsError:
    if origin.source is not Source.FILE:
        return SettingsError(f"{origin.text} sets {key_text(key)}, which is no setting{_near(key)}")
    table = f" in {_table_text(key[:-1])}" if len(key) > 1 else ""
    return SettingsError(f"{origin.text}: unknown key {str(key[-1])!r}{table}{_near(key)}")


def _table_text(key: Key) -> str:
    is_item = isinstance(key[-1], int)
    return f"[[{key_text(key[:-1])}]]" if is_item else f"[{key_text(key)}]"


def _near(key: Key) -> str:
    """A hint: the table in which the name would be right, else the nearest name."""
    name, table = str(key[-1]), _model_at(key[:-1])
    own = [] if table is None else [*table.model_fields, *(SHORT_KEYS if len(key) == 1 else ())]
    if name in Settings.model_fields:
        return f"; {name} belongs above the first table"
    others = {other: place for place, model in _tables() for other in model.model_fields}
    if name in others:
        return f"; it belongs in [{others[name]}]"
    near = difflib.get_close_matches(name, {*own, *others}, 1)
    if not near:
        return ""
    place = "" if near[0] in own else f" in [{others[near[0]]}]"
    return f"; did you mean {near[0]!r}{place}?"


def _tables() -> Iterator[tuple[str, Model]]:
    """Tables that stand alone; what the items of lists have is looked for in those alone."""
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield name, type(field.default)


def _model_at(key: Key) -> Model | None:
    model: Model | None = Settings
    for part in key:
        if isinstance(part, str):
            field = model.model_fields.get(part) if model else None
            model = _model_in(field.annotation) if field else None
    return model


def _allowed(key: Key) -> str:
    """The words for what a key takes."""
    words = ""
    model: Model | None = Settings
    inner: tuple[object, ...] = ()
    for part in key:
        if isinstance(part, int):
            words = _words(inner[:1]) or "a table"
        elif model is not None and part in model.model_fields:
            field = model.model_fields[part]
            inner, model = get_args(field.annotation), _model_in(field.annotation)
            words = field.description or _words(inner)
    return words


def _words(types: tuple[object, ...]) -> str:
    """The description of the first type that has one: of `Port` in `Port | None`."""
    for inner in types:
        for note in getattr(inner, "__metadata__", ()):
            if isinstance(note, FieldInfo) and note.description:
                return note.description
    return ""


def _model_in(annotation: object) -> Model | None:
    """The table behind `Table`, `tuple[Table, ...]` or `Annotated[Table, …]`."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, BaseModel) else None
    inner = get_args(annotation)
    return _model_in(inner[0]) if inner else None
