"""Rules that hold for whatever input hypothesis thinks of, most against a second, naive implementation.

No example tables: those are in the folders that mirror the product. HYPOTHESIS_PROFILE=deep looks longer.
"""
