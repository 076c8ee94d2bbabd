"""`python -m egress_proxy …`: the same as `egress-proxy …`.

With a flag in front it means `serve`, as hosts of the earlier product start it. Next: cli/main.py.
"""

import sys

from egress_proxy.cli.main import main_module

if __name__ == "__main__":
    sys.exit(main_module())
