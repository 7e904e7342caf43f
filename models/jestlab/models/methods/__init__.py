"""Methods that came before and after JEST, as custom losses and rules.

Each is an entry point of jestlab itself, so that a spec uses it like built-in code. The digest of its module
is part of a run's identity; comments and docstrings are not.

distillation.py  losses with a teacher: softmax distillation; with joint selection, ACED
drrho.py         the loss of DRRho-CLIP, in which a reference weighs the negatives
highest.py       the rule of RHO-LOSS: the highest scores, without sampling
concepts.py      the rules of CABS, which balance or accumulate concepts and use no scores

Offline methods, which score a whole data set once, are in `jestlab.models.scoring`. ACID is selection by a
reference that is larger than the learner. `selection.until` restricts selection to early training.
"""
