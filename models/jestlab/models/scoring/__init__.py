"""Score a whole data set once, from a reference's cached embeddings; filters read the scores as columns.

columns.py   the columns of a finished run: one number per example
methods.py   each method: CLIPScore, negCLIPLoss, NormSim, SemDeDup, soft-capped sampling
score.py     all columns that a run of the program `score` computes
"""
