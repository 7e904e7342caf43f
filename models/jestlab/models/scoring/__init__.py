"""Score a whole data set once, from a reference's cached embeddings; filters read the scores as columns."""
