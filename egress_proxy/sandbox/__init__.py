"""Client library: make the proxy a process's only way out. Says which part of a promise holds, and which not.

Imports core alone, and no web framework; never decides what may be reached. Start at environment.py.
"""
