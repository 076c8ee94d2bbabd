"""`python -m egress_proxy.sandbox …`: the same as `egress-proxy sandbox …`, for hosts of the earlier product.

An entry point, which nobody imports: so it may reach up to the verbs. Next: cli/sandbox_verb.py.
"""

import sys

from egress_proxy.cli.main import main_sandbox_module

if __name__ == "__main__":
    sys.exit(main_sandbox_module())
