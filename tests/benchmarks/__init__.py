"""Measurements, no tests: they print and exit 0, but for --check. Each is a subcommand of its own.

Begin with __main__.py (the list of them), then the module that a name there stands for.
"""
