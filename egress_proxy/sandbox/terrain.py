"""What is found where a command will run, in one search: what to protect in the roots, what to hide anywhere.

Looks at the file system and changes nothing. Next: protected.py and masks.py (the two halves), choose.py
(searches), bwrap.py and landlock_rung.py (use it), planted.py (compares with it afterwards).
"""

from dataclasses import dataclass

from egress_proxy.sandbox.kept_files import kept_of
from egress_proxy.sandbox.masks import Masked, masked_of
from egress_proxy.sandbox.protected import Protection, ProtectionRefused, Scan, protection_of, scan
from egress_proxy.sandbox.spec import Dimension, Enforcement, Gap, SandboxSpec, SandboxUnavailable


@dataclass(frozen=True, slots=True)
class Terrain:
    """``scans``: one of each root."""

    scans: tuple[Scan, ...]
    masked: Masked

    def protections(self, spec: SandboxSpec) -> tuple[Protection, ...]:
        """Raises SandboxUnavailable for what cannot be protected and is too dangerous to leave."""
        if not spec.protect and not kept_of(spec):
            return ()
        try:
            also = (*spec.protected, *(one.path for one in kept_of(spec)))
            return tuple(protection_of(found, also) for found in self.scans)
        except ProtectionRefused as error:
            raise SandboxUnavailable(str(error)) from None

    def gaps(self) -> tuple[Gap, ...]:
        """Where the search could not see everything, or what it saw cannot be hidden."""
        return tuple(Gap(Dimension.SECRETS, Enforcement.PARTIAL, reason) for reason in self.masked.open)


NOTHING_FOUND = Terrain((), Masked())


def survey(spec: SandboxSpec) -> Terrain:
    scans = tuple(scan(root, env_files=spec.mask_secrets) for root in spec.roots)
    return Terrain(scans, masked_of(spec, scans))
