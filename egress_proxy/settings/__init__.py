"""What the service was told: one typed tree of flags, EGRESS_* variables, a file, defaults.

Imported by cli/ only; imports none of our packages, reads no os.environ (a mapping is passed in).
Start at tree.py (every key there is), then load.py (how the sources come together).
"""
