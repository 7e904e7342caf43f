"""Programs that compute with the towers: train, embed, diagnose.

Nothing is imported here, because `tracker` is also for callers that do not need JAX.

train(config, ..., tracker=tracker)       loop.py: one training run; step.py: one step of it
embed(config, ..., tracker=tracker)       embed.py: a reference's embeddings of a whole data set
diagnose(config, ..., tracker=tracker)    diagnose.py: how learnable the batches are that the rules select
"""
