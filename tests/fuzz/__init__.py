"""Parsers against mutated bytes: atheris targets that are ordinary tests over the seeds besides.

Begin with targets.py (what must hold), then seeds/ (what it is tried on), __main__.py (searches for more).
The whole data port is tried by ways.py: one input cut up in several ways, which must all get one answer.
"""
