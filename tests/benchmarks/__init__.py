"""Measurements, no tests: they print and always exit 0. Each is a subcommand in a module of its own.

Begin with __main__.py (the list of them), then the module that a name there stands for.
"""
