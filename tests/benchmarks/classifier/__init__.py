"""The labelled command lines, and how well and how fast the classifier grades them.

own-lines.jsonl was written without a look at the rules, so that it measures them. So was blind-lines.jsonl,
later, in six rounds: each was graded before a rule changed for it. shared-lines.jsonl was there first.
A label is changed when it is wrong, never because the classifier disagrees.
Begin with corpus.py (what a label means), then benchmark.py (what is counted).
"""
