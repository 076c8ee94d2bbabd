"""The whole product from outside: the real process, its two ports, and the real clients.

Nothing is imported from the product. road.py takes a client through the service, programs.py finds them.
"""
