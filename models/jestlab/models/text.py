"""The text tower: a transformer without causal or padding mask, as in SigLIP."""

from __future__ import annotations

import flax.linen as nn
import jax

from .config import TextTower
from .transformer import Encoder


class TextTransformer(nn.Module):
    """Token sequences to one vector each.

    Attributes:
        config: Sizes of the tower.
        embedding_dim: Width of the dense head.
    """

    config: TextTower
    embedding_dim: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """tokens: int32 [n, L] → embedding float32 [n, E], not normalised."""
        cfg = self.config
        x = nn.Embed(cfg.vocabulary_size, cfg.width)(tokens)
        _, length, width = x.shape
        x = x + self.param(
            "pos_embedding", nn.initializers.normal(stddev=width**-0.5), (1, length, width), x.dtype
        )
        x = Encoder(cfg.depth, cfg.heads, cfg.mlp_dim or 4 * cfg.width, name="Encoder_0")(x)
        x = x[:, -1] if cfg.pooling == "last" else x.mean(axis=1)
        return nn.Dense(self.embedding_dim, name="head")(x)
