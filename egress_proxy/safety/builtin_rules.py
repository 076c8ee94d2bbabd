"""All built-in rules, in the order in which they are reported, and those for lines not read whole.

Data only. Next: rules_files.py, rules_disks.py, rules_git.py, rules_stores.py, rules_access.py,
rules_system.py, rules_windows.py.
"""

from egress_proxy.safety.pattern import Rule, View
from egress_proxy.safety.rule_parts import rule
from egress_proxy.safety.rules_access import ACCESS_RULES
from egress_proxy.safety.rules_disks import DISK_RULES
from egress_proxy.safety.rules_files import FILE_RULES
from egress_proxy.safety.rules_git import GIT_RULES
from egress_proxy.safety.rules_stores import STORE_RULES
from egress_proxy.safety.rules_system import SYSTEM_RULES
from egress_proxy.safety.rules_windows import WINDOWS_RULES

_NOTHING = View(0)  # their ids are given by the reader, not found in a text


def _limit(rule_id: str, description: str) -> Rule:
    return rule(
        rule_id, description, "^$", "reading", "warning", view=_NOTHING, platform="all", hits=(), misses=()
    )


# Ids as in execution.Limit; `too_long` is the contract's.
LIMIT_RULES = {
    item.id: item
    for item in (
        _limit("too_long", "The line is longer than what is taken apart: judged by its text alone"),
        _limit("too_deep", "Commands in commands, deeper than they are followed"),
        _limit("too_many", "More commands than are followed"),
        _limit("too_costly", "The line could not be taken apart within the work that is allowed for it"),
        _limit("not_parsed", "A part of the line is no shell grammar, and the rest would run"),
    )
}

BUILTIN_RULES: tuple[Rule, ...] = (
    *FILE_RULES,
    *DISK_RULES,
    *GIT_RULES,
    *STORE_RULES,
    *ACCESS_RULES,
    *SYSTEM_RULES,
    *WINDOWS_RULES,
    *LIMIT_RULES.values(),
)
