"""Pieces that built-in patterns are made of, and the constructor of a built-in rule.

Next: builtin_rules.py and the rules_*.py files (data), shape.py (the text they are searched in).
"""

from collections.abc import Collection, Sequence

from egress_proxy.safety.pattern import CommandSafetyPattern, Platform, Rule, Severity, View
from egress_proxy.safety.values import names

O = r"(?: -[^ ]*)*"  # noqa: E741 -- options between the name and `--`
W = r"(?: [^ ]+)*"  # operands
END = r"(?: |$)"
ANY = r"\x{e000}"  # what is not known before the command runs

_TOP = "bin|boot|dev|etc|home|lib|lib32|lib64|opt|proc|root|run|sbin|srv|sys|usr|var|mnt|media"
_MAC = "Applications|Library|System|Users|Volumes|private|cores"
_BELOW = "System/[^/ ]+|usr/(?:bin|lib|lib64|local|sbin|share|libexec|include)|var/(?:lib|db|spool|mail|www|backups)|etc/[^/ ]+"
# The machine, its homes and its programs, as one operand; `~` is the home of whoever runs it.
ROOTS = (
    r"(?:/|/\*+|/\.\*|/\{[^ ]*|~[a-z_]*(?:/\.?\*+|/\.)?|"
    rf"/(?:{_TOP}|{_MAC})(?:/\.?\*+)?|/(?:{_BELOW})(?:/\*+)?|/var/lib/[^/ ]+|/mnt/[a-z](?:/\*)?|/(?:home|Users)/[^/ ]+(?:/\.?\*+)?|"
    r"~/\.(?:ssh|gnupg|aws|kube|config|local)(?:/\*)?|~/(?:Documents|Desktop|Library|Pictures)(?:/\*)?|"
    r"(?:/cygdrive|/mnt)?/[a-z](?:/(?:\.?\*+|(?i:users|windows|program\sfiles[^ /]*)(?:/[^/ ]+)?))?|"
    r"[A-Za-z]:[\\/]?(?:\*|(?i:users|windows|program\sfiles[^ \\/]*)(?:[\\/][^\\/ ]+)?)?|"
    rf"\.\./\.\./\.\.[^ ]*|/\?+|/\[[^ ]*)"
)
DISK = (
    r"/dev/(?:[shv]d[a-z]|xvd[a-z]|nvme\d|mmcblk\d|r?disk\d|md\d|dm-\d|mapper/|nbd\d|disk/|block/|k?mem$|port$|loop\d|[sx]vd|"
    r"sd\*|sd\?|sd\[|[svh]d" + ANY + "|" + ANY + ")"
)
HARMLESS_DEVICES = names(
    "null zero full random urandom stdin stdout stderr console kmsg log ptmx dsp fd/* pts/* shm/* mqueue/* tcp/* udp/* "
    "tty* lp* usb/lp*"
)
_ROUGH_ROOT = r"[\"']?(?:/|~|\$\{?HOME\}?)/?\*?[\"']?(?:\s|$|[;&|)])"
ROUGH_RM = r"\brm\s+(?:-\S+\s+)*-\S*[rR]\S*\s+(?:\S+\s+){0,8}?" + _ROUGH_ROOT


def none_of(words: Collection[str]) -> str:
    """A word that is none of ``words`` and begins with none that ends in `*`. RE2 has no look-ahead."""
    options = [f"[^ {''.join({word[0] for word in words if word})}][^ ]*"]
    for head in sorted({word[0] for word in words if word}):
        rest = {word[1:] for word in words if word[:1] == head}
        options += [head + none_of(rest)] if "*" not in rest else []
    return f"(?:{'|'.join(options)}{'|' * ('' not in words)})"


def rule(
    rule_id: str,
    description: str,
    pattern: str,
    category: str,
    severity: Severity,
    *,
    hits: Sequence[str],
    misses: Sequence[str],
    view: View = View.SHAPE,
    platform: Platform = "unix",
    rough: str | None = None,
    label: str | None = None,
) -> Rule:
    return Rule(
        CommandSafetyPattern(
            id=rule_id,
            label=label or rule_id.replace("_", " "),
            description=description,
            pattern=pattern,
            category=category,
            severity=severity,
            platform=platform,
        ),
        view,
        rough,
        tuple(hits),
        tuple(misses),
    )
