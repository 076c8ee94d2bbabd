"""TRUSTED 2. Holds secrets: a value leaves in the one header of its rule, and nowhere else.

Imported by proxy/ and cli/ only, imports core alone; does no network, reads no environment itself.
Start at secret.py (the type); sources.py says where a value comes from, injection.py where it goes.
"""
