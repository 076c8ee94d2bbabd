"""What a confined command must not read: keys and tokens in the home folder, .env files, what was named.

Looks at the file system and changes nothing. Next: protected.py (finds them), bwrap.py, landlock_rung.py.
"""

import os

from egress_proxy.sandbox.protected import env_files_in, secrets_below
from egress_proxy.sandbox.spec import SandboxSpec


def masked_paths(spec: SandboxSpec) -> tuple[str, ...]:
    """After symbolic links: a mount goes onto the thing and not onto its link."""
    paths = list(map(os.path.realpath, spec.masks))
    if spec.mask_secrets:
        if spec.home is not None:
            paths += [secret.path for secret in secrets_below(spec.home)]
        for root in spec.roots:
            paths += env_files_in(root)
    return tuple(dict.fromkeys(paths))
