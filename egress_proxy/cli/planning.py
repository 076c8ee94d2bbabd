"""Flags and environment to a ServicePlan: every setting read, checked and turned into its type.

Reads files and secrets, opens nothing that listens. Next: plan.py (the plan), policy_source.py and
secret_source.py (two of its parts), serve.py (who gets it).
"""

import argparse
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from egress_proxy.cli.attach_source import attach_of
from egress_proxy.cli.own_files import own_files, settings_file
from egress_proxy.cli.plan import AttachPlan, AuditPlan, ControlPlan, PolicyParts, ServiceLimits, ServicePlan
from egress_proxy.cli.policy_source import policy_of
from egress_proxy.cli.secret_source import (
    Secrets,
    SecretShelf,
    exposed_among,
    read_secrets,
    source_names,
    unsearched_among,
    variables_among,
)
from egress_proxy.cli.service_checks import bind_of, check_service, resolver_of, warnings_of
from egress_proxy.cli.settings_flags import settings_given
from egress_proxy.core.policy import Policy
from egress_proxy.logs import Verbosity
from egress_proxy.proxy.audit import OnError
from egress_proxy.settings.load import Flags, Loaded, load
from egress_proxy.vault.secret import Secret
from egress_proxy.vault.sources import SourceName

# Wiped even where no setting names them: hosts of ours hand secrets over in these.
_ALWAYS_WIPED = frozenset(
    {"STEERABLE_EGRESS_SECRET", "STEERABLE_EGRESS_CONTROL_TOKEN", "EGRESS_CONTROL_TOKEN"}
)


@dataclass(frozen=True, slots=True)
class Command:
    """The command line of a service: its settings, and how loud it is."""

    flags: Flags
    config: str | None
    verbosity: Verbosity = Verbosity.NORMAL


def command_of(arguments: argparse.Namespace) -> Command:
    verbosity = Verbosity.NORMAL
    if getattr(arguments, "quiet", False):
        verbosity = Verbosity.QUIET
    elif getattr(arguments, "verbose", False):
        verbosity = Verbosity.VERBOSE
    return Command(settings_given(arguments), arguments.config, verbosity)


@dataclass(frozen=True, slots=True)
class Checked:
    """Settings in which nothing is wrong, but for secrets, which were not read."""

    loaded: Loaded
    policy: Policy
    secrets: frozenset[SourceName]


@dataclass(frozen=True, slots=True)
class Planned:
    """``warnings``: lines for the person who starts it."""

    plan: ServicePlan
    warnings: tuple[str, ...]


Wipe = Callable[[Collection[str]], None]
"""Takes variables out of the process's environment, by name."""


def check(command: Command, environ: Mapping[str, str]) -> Checked:
    """Raises SettingsError."""
    loaded = load(command.flags, environ, command.config)
    policy = policy_of(loaded, environ)
    check_service(loaded, policy)
    return Checked(loaded, policy, source_names(loaded))


def plan_service(command: Command, environ: Mapping[str, str], wipe: Wipe) -> Planned:
    """``environ`` is a copy: a reload reads it again after ``wipe`` has emptied the real one.

    Raises SettingsError.
    """
    shelf = SecretShelf(environ)

    def read() -> tuple[Checked, Secrets]:
        checked = check(command, environ)
        secrets = read_secrets(checked.loaded, shelf)
        wipe(variables_among(checked.secrets) | _ALWAYS_WIPED)
        return checked, secrets

    def reload() -> PolicyParts:
        return _parts(*read(), file)

    file = settings_file(command.config, environ)
    checked, secrets = read()
    attach = attach_of(checked.loaded, environ)
    plan = _plan(
        command,
        checked,
        _parts(checked, secrets, file),
        secrets.control,
        attach.plan,
        shows_color(environ),
        reload,
    )
    warnings = (*warnings_of(checked.loaded, checked.policy), *exposed_among(checked.secrets))
    return Planned(plan, (*warnings, *unsearched_among(secrets.credentials), *attach.warnings))


def shows_color(environ: Mapping[str, str]) -> bool:
    """Whether a terminal may be given colours (no-color.org)."""
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def _parts(checked: Checked, secrets: Secrets, file: str | None) -> PolicyParts:
    own = own_files(checked.loaded.settings, checked.secrets, file)
    return PolicyParts(checked.policy, secrets.credentials, secrets.clients, own)


def _plan(
    command: Command,
    checked: Checked,
    parts: PolicyParts,
    control: Secret | None,
    attach: AttachPlan | None,
    color: bool,
    reload: Callable[[], PolicyParts],
) -> ServicePlan:
    settings, audit = checked.loaded.settings, checked.loaded.settings.audit
    return ServicePlan(
        bind=bind_of(checked.loaded),
        same_user=settings.same_user,
        unix_path=_path(settings.listen_unix),
        attach=attach,
        parts=parts,
        reload=reload,
        limits=ServiceLimits(**settings.limits.model_dump()),
        connect_timeout_s=settings.connect_timeout,
        hold_timeout_s=settings.hold_timeout,
        resolver=resolver_of(checked.loaded),
        relay=settings.relay,
        control=ControlPlan(settings.control.port, control) if control else None,
        audit=AuditPlan(Path(audit.path).absolute(), OnError(audit.on_error)) if audit.path else None,
        record_path=_path(settings.record_requests),
        verbosity=command.verbosity,
        color=color,
    )


def _path(text: str) -> Path | None:
    """Absolute, so that it stays the same file wherever the process goes."""
    return Path(text).absolute() if text else None
