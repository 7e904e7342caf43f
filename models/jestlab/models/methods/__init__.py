"""Published methods to compare with JEST: CABS and RHO-LOSS as rules, distillation and DRRho as losses.

Each is an entry point of jestlab itself, so that specs name it like built-in code. The digest of its module
is part of a run's identity; comments and docstrings are not. Offline methods, which score a whole data set
once, are in `jestlab.models.scoring`. ACID is selection by a reference that is larger than the learner.
"""
