"""Variables as shells, env files, JSON, Docker and Kubernetes take them, and as they drop them again.

Text only; which variables there are is said by sandbox/environment.py. Next: env.py (prints it).
"""

import enum
import json
import shlex
from collections.abc import Iterable, Mapping
from typing import assert_never


class Format(enum.StrEnum):
    SHELL = "shell"
    DOTENV = "dotenv"
    JSON = "json"
    DOCKER = "docker"  # for `docker run --env-file`, which takes values as they are, without quotes
    K8S = "k8s"  # the `env:` list of a container


def render(variables: Mapping[str, str], form: Format) -> str:
    match form:
        case Format.SHELL:
            return _lines(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
        case Format.DOTENV:
            return _lines(f"{name}={_double_quoted(value)}" for name, value in variables.items())
        case Format.JSON:
            return json.dumps(dict(variables), indent=2) + "\n"
        case Format.DOCKER:
            return _lines(f"{name}={value}" for name, value in variables.items())
        case Format.K8S:
            # A JSON string is a YAML string, and `1` would be a number, which Kubernetes refuses.
            return _lines(
                f"- name: {name}\n  value: {json.dumps(value)}" for name, value in variables.items()
            )
        case _:
            assert_never(form)


def render_unset(names: Iterable[str], form: Format) -> str:
    """An env file cannot take a variable away: there it is emptied, which clients take for unset."""
    match form:
        case Format.SHELL:
            return _lines(f"unset {name}" for name in names)
        case Format.DOTENV | Format.DOCKER:
            return _lines(f"{name}=" for name in names)
        case Format.JSON:
            return json.dumps(dict.fromkeys(names), indent=2) + "\n"
        case Format.K8S:
            return _lines(f"- name: {name}\n  $patch: delete" for name in names)
        case _:
            assert_never(form)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _double_quoted(value: str) -> str:
    # Compose and other readers expand `$` inside double quotes.
    for special in ("\\", '"', "$"):
        value = value.replace(special, "\\" + special)
    return '"' + value.replace("\n", "\\n") + '"'
