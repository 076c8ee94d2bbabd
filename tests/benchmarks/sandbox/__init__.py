"""What confinement adds to the start of a command: `python -m tests.benchmarks sandbox`."""
