"""What code of one's own has to keep, as tests that ship: `jestlab.testing` is their public face.

training.py   rules, criteria, losses, evaluations, readers and towers
results.py    figures and tables, on a small study whose results are made up
executors.py  executors, with jobs that do as they are told (`obedient`)
"""
