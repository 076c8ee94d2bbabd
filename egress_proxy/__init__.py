"""The egress proxy: decides, keeps secrets, moves bytes, confines processes, judges commands.

Rings (checked by import-linter): cli -> agent, fleet -> control_api | proxy | sandbox | safety -> core.
Start reading at core/policy.py (who says yes) and proxy/connection.py (what happens to one client).
"""

__version__ = "0.1.0"
