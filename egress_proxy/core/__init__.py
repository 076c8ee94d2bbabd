"""TRUSTED 1. Decides: text becomes a typed value once, a pure function answers, a value says why.

Nothing here does I/O, reads a clock, logs or draws a random number; nothing here imports another ring.
Start at policy.py; host.py is the only parser of hosts and ports, request.py of request heads.
"""
