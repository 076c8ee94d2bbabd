"""The proxy beside its peers on one machine: CPU, memory and delay of the same work, in the same run.

Begin with benchmark.py (what a run is), then cases.py (what is measured) and goals.py (what is hoped for).
Every part is bounded in time and talks to loopback only; nothing here asserts a time.
"""
