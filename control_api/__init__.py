"""Where people and agent hosts talk to the proxy: grant, watch, revoke. On loopback, behind a token.

Imports egress_proxy.core alone: everything else comes in as callables, so nothing here can reach a secret.
Start at server.py (one request from end to end); client.py is what others import.
"""
