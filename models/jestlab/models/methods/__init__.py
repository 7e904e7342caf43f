"""Methods that came before and after JEST, by the interfaces that code of one's own has.

Each is offered as an entry point of jestlab itself, so a spec names it as it would name something built in.
Its own source is part of a run's identity.

distillation.py  losses with a teacher: softmax distillation, and with joint selection ACED
drrho.py         the loss of DRRho-CLIP, in which a reference weighs the negatives
highest.py       the rule of RHO-LOSS: the highest scores, and no draw
concepts.py      the rules of CABS, which balance or pile up concepts and look at no scores

Offline methods, which score a whole dataset once, are in `jestlab.models.scoring`. ACID needs no code: it is
selection by a reference that is larger than the learner. Selection in the early part of training alone is
`selection.until`.
"""
