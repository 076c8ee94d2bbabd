"""The control API against a real server on loopback, with the product's own grant store behind it."""
