"""Programs that compute with the towers: train, embed, diagnose.

Nothing is imported here, because `tracker` is also for callers that do not need JAX.

train(config, ..., tracker=tracker)       loop.py: one training run; step.py: one step of it
embed(config, ..., tracker=tracker)       embed.py: a reference's embeddings of a whole data set
diagnose(config, ..., tracker=tracker)    diagnose.py: how learnable the batches are that the rules select

One super-batch in the order of reading, from here and jestlab/models; on one device, without devices.py:
loop.py                         take the next super-batch, call the step, and report its metrics
data/pipeline.py                order the examples, tokenize their captions, and replace damaged images
data/shards.py, data/images.py  read the files of examples from tars; decode images and resize them
step.py                         score, select, gather the sub-batch, differentiate, and update
learner.py, two_towers.py       embed to score, later compute the gradient; the towers, also the reference's
selection/select.py, scores.py  draw the sub-batch in chunks; score the candidates given earlier chunks
losses.py                       the loss of the sub-batch, which step.py gives to learner.py
optimizer.py                    turn the gradient into the update of the parameters
"""
