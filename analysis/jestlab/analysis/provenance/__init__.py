"""The provenance of results: which code, data, and attempts produced them.

`code` compares what runs were made with. `history` reads what the store has about an experiment besides its
results, and tells how to reproduce it. `explain` shows where a number in a table comes from.
"""
