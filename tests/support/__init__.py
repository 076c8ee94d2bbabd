"""Real loopback parts for tests: name server, origins, provider, certificates, the service.

Nothing here knows the product's code: everything is seen from outside, through sockets and /proc.
Begin with service.py (the product as a user starts it) and provider.py (the upstream it talks to).
"""
