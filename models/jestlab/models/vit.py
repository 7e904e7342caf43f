"""The image tower: a Vision Transformer with learned position embeddings (Dosovitskiy et al., 2021)."""

from __future__ import annotations

import flax.linen as nn
import jax

from .config import VisionTower
from .transformer import Encoder, MAPHead


class VisionTransformer(nn.Module):
    """Images to one vector each.

    Attributes:
        config: Sizes of the tower.
        embedding_dim: Width of a dense head after pooling; None for no head (SigLIP's own towers have none).
    """

    config: VisionTower
    embedding_dim: int | None = None

    @nn.compact
    def __call__(self, images: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Encode images.

        Args:
            images: float32 [n, h, w, 3] in [−1, 1].

        Returns:
            The embedding, float32 [n, E], not normalised, and the pooled features before the head
            ("pre-logits"), float32 [n, D], on which linear probes are trained.
        """
        cfg = self.config
        mlp_dim = cfg.mlp_dim or 4 * cfg.width
        patch = (cfg.patch_size, cfg.patch_size)
        x = nn.Conv(cfg.width, patch, strides=patch, padding="VALID", name="embedding")(images)
        n, h, w, width = x.shape
        x = x.reshape(n, h * w, width)
        x = x + self.param(
            "pos_embedding", nn.initializers.normal(stddev=width**-0.5), (1, h * w, width), x.dtype
        )
        x = Encoder(cfg.depth, cfg.heads, mlp_dim, name="Transformer")(x)
        features = MAPHead(cfg.heads, mlp_dim)(x) if cfg.pooling == "map" else x.mean(axis=1)
        if self.embedding_dim is None:
            return features, features
        return nn.Dense(self.embedding_dim, name="head")(features), features
