"""What must hold however long it runs: every byte arrives, memory stays flat, nothing is left behind.

Counts, no times. Begin with check.py (the long form, `--check`); the short one is
tests/end_to_end/test_endurance.py.
"""
