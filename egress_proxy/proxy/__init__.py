"""TRUSTED 3. Moves bytes: the I/O shell round the decisions of core.

Who opens sockets: dialer.py. Who sees a secret: forward.py, through vault. What happens to one client:
connection.py. Nothing here decides, and nothing here knows the control API.
"""
