"""Real loopback parts for tests: name server, origins, provider, certificates, the service.

Only data_port.py knows the product's code: all else is seen from outside, through sockets and /proc.
Begin with service.py (the product as a user starts it) and provider.py (the upstream it talks to).
"""
