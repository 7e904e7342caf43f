"""The transformer encoder that both towers share: pre-norm blocks, tanh-GELU, as in SigLIP's public code.

Parameter names are those that flax.linen gives the same modules in big_vision, so that its trees fit.

Letters: n examples, L tokens, D width.
"""

from __future__ import annotations

import functools

import flax.linen as nn
import jax

LAYER_NORM_EPSILON = 1e-6


class MlpBlock(nn.Module):
    """Two dense layers with a tanh-GELU between.

    Attributes:
        hidden_dim: Width of the hidden layer.
    """

    hidden_dim: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x: float [n, L, D] → float [n, L, D]."""
        dense = functools.partial(
            nn.Dense,
            kernel_init=nn.initializers.xavier_uniform(),
            bias_init=nn.initializers.normal(stddev=1e-6),
        )
        width = x.shape[-1]
        x = nn.gelu(dense(self.hidden_dim)(x), approximate=True)
        return dense(width)(x)


class EncoderBlock(nn.Module):
    """Attention, then MLP, each on the normalised residual stream: x + f(LN(x))."""

    heads: int
    mlp_dim: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x: float [n, L, D] → float [n, L, D]."""
        y = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON)(x)
        y = nn.MultiHeadDotProductAttention(
            num_heads=self.heads, kernel_init=nn.initializers.xavier_uniform(), deterministic=True
        )(y, y)
        x = x + y
        y = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON)(x)
        return x + MlpBlock(self.mlp_dim)(y)


class Encoder(nn.Module):
    """`depth` blocks and a last normalisation."""

    depth: int
    heads: int
    mlp_dim: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x: float [n, L, D] → float [n, L, D]."""
        for layer in range(self.depth):
            x = EncoderBlock(self.heads, self.mlp_dim, name=f"encoderblock_{layer}")(x)
        y: jax.Array = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON, name="encoder_norm")(x)
        return y


class MAPHead(nn.Module):
    """Multi-head attention pooling: one learned probe looks at all tokens (Zhai et al., 2022, Sec. 2.1)."""

    heads: int
    mlp_dim: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x: float [n, L, D] → float [n, D]."""
        n, _, width = x.shape
        probe = self.param("probe", nn.initializers.xavier_uniform(), (1, 1, width), x.dtype)
        probe = jax.numpy.tile(probe, (n, 1, 1))
        x = nn.MultiHeadDotProductAttention(
            num_heads=self.heads, kernel_init=nn.initializers.xavier_uniform(), deterministic=True
        )(probe, x)
        y = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON)(x)
        x = x + MlpBlock(self.mlp_dim)(y)
        return x[:, 0]
