"""`python -m egress_proxy …`: the same as `egress-proxy …`.

With a flag in front it means `serve`, as hosts of the earlier product start it. Next: cli/main.py.
"""

import sys

from egress_proxy.cli.beginning import begin

if __name__ == "__main__":
    begin(is_service=sys.argv[1:2] == ["serve"] or (sys.argv[1:2] != [] and sys.argv[1].startswith("-")))
    from egress_proxy.cli.main import main_module

    sys.exit(main_module())
