"""The provenance of results: which code, data, and attempts produced them."""
