"""The text tower: a transformer without causal or padding mask, as in SigLIP."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from .config import TextTower
from .transformer import Encoder, Execution


class TextTransformer(nn.Module):
    """Token sequences to one vector each.

    Attributes:
        config: Sizes of the tower.
        embedding_dim: Width of the dense head.
        dtype: Of the activations; parameters and results are float32.
        execution: How the encoder is computed.
    """

    config: TextTower
    embedding_dim: int
    dtype: str = "float32"
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """tokens: int32 [n, L] → embedding float32 [n, E], not normalised."""
        cfg = self.config
        # Only the rows looked up are converted, not the whole table.
        x = nn.Embed(cfg.vocabulary_size, cfg.width)(tokens).astype(self.dtype)
        _, length, width = x.shape
        positions = self.param(
            "pos_embedding", nn.initializers.normal(stddev=width**-0.5), (1, length, width)
        )
        x = x + positions.astype(self.dtype)
        mlp_dim = cfg.mlp_dim or 4 * cfg.width
        x = Encoder(cfg.depth, cfg.heads, mlp_dim, self.dtype, self.execution, name="Encoder_0")(x)
        x = x[:, -1] if cfg.pooling == "last" else x.mean(axis=1)
        return nn.Dense(self.embedding_dim, dtype=self.dtype, name="head")(x).astype(jnp.float32)
