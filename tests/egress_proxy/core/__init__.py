"""Tests of core: each file mirrors one of egress_proxy/core and holds its rules, one test a rule.

No sockets, no sleep, no clock. Random input is in tests/properties, mutated bytes are in tests/fuzz.
"""
