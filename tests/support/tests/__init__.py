"""Proofs that the support code does what tests rely on, each against an independent counterpart.

No test of the product is here; those are in the folders that mirror the product's tree.
"""
