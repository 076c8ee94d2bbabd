"""Is this shell command dangerous? A hint for approvals, and not a boundary: the sandbox is that.

Promise: text in, a grade with its reasons out; nothing is run. Imports core at most, no aiohttp.
"""
