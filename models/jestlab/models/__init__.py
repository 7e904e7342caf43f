"""The JEST model code: configs, data, towers, losses, selection, training, evaluation, weights."""
