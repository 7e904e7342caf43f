"""Score a whole data set once, from a reference's cached embeddings; filters read the scores as columns.

columns.py           the columns of a finished run, one number for each example
score.py             what a run of program `score` computes
clip_loss.py         negCLIPLoss: the cosine of a pair, less what is alike to it in random batches
norm_similarity.py   NormSim: how alike an image is to those of a target set
duplicates.py        SemDeDup: how alike an image is to one that is kept
soft_cap.py          soft-capped sampling: how often each example is read
"""
