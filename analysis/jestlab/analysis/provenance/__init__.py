"""The provenance of results: which code, data, and attempts produced them.

`code` compares the code of runs. `history` reads the stored data of an experiment except its results, and
describes how to reproduce the experiment.
"""
