"""The tests: a mirror of the product's tree, with real parts to test against in support/."""
