"""The transformer encoder that both towers share: pre-norm blocks, tanh-GELU, as in SigLIP's public code.

Parameter names are those that flax.linen gives the same modules in big_vision, so that its trees fit.
Parameters are float32. Products are computed in `dtype`; the statistics of normalisations and the softmax in
float32.

Letters: n examples, L tokens, D width.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

LAYER_NORM_EPSILON = 1e-6


@dataclass(frozen=True)
class Execution:
    """How an encoder is computed: memory and compile time, never its values.

    Attributes:
        remat: What the backward pass computes again instead of keeping it from the forward pass. "none":
            nothing. "dots": all but products with weights; attention's own products, whose results grow with
            L², are computed again. "all": whole blocks, from their inputs.
        scan: Whether the blocks are one loop over their stacked parameters: faster to compile.
    """

    remat: Literal["none", "dots", "all"] = "none"
    scan: bool = False


class MlpBlock(nn.Module):
    """Two dense layers with a tanh-GELU between.

    Attributes:
        hidden_dim: Width of the hidden layer.
        dtype: Of the activations.
    """

    hidden_dim: int
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x: float [n, L, D] → float [n, L, D]."""
        dense = functools.partial(
            nn.Dense,
            dtype=self.dtype,
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
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x: float [n, L, D] → float [n, L, D]."""
        y = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON, dtype=self.dtype)(x)
        x = x + _attention(self.heads, self.dtype)(y, y)
        y = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON, dtype=self.dtype)(x)
        return x + MlpBlock(self.mlp_dim, self.dtype)(y)


class Encoder(nn.Module):
    """`depth` blocks and a last normalisation.

    The parameter tree is `{encoderblock_0: …, encoderblock_1: …, encoder_norm: …}` under every execution.
    """

    depth: int
    heads: int
    mlp_dim: int
    dtype: str = "float32"
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x: float [n, L, D] → float [n, L, D]."""
        block = functools.partial(_rematerialized(self.execution.remat), self.heads, self.mlp_dim, self.dtype)
        if self.execution.scan and not self.is_initializing():
            x = self._scan(block(parent=None), x)
        else:
            for layer in range(self.depth):
                x = block(name=f"encoderblock_{layer}")(x)
        y: jax.Array = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON, dtype=self.dtype, name="encoder_norm")(x)
        return y

    def _scan(self, block: nn.Module, x: jax.Array) -> jax.Array:
        """All blocks as one loop. Parameters are stacked here, so that no tree outside knows of it."""
        layers = [self.variables["params"][f"encoderblock_{layer}"] for layer in range(self.depth)]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)

        def body(x: jax.Array, parameters: Any) -> tuple[jax.Array, None]:
            y: Any = block.apply({"params": parameters}, x)
            return y, None

        return jax.lax.scan(body, x, stacked)[0]


class MAPHead(nn.Module):
    """Multi-head attention pooling: one learned probe looks at all tokens (Zhai et al., 2022, Sec. 2.1)."""

    heads: int
    mlp_dim: int
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x: float [n, L, D] → float [n, D]."""
        n, _, width = x.shape
        probe = self.param("probe", nn.initializers.xavier_uniform(), (1, 1, width))
        x = _attention(self.heads, self.dtype)(jnp.tile(probe.astype(x.dtype), (n, 1, 1)), x)
        y = nn.LayerNorm(epsilon=LAYER_NORM_EPSILON, dtype=self.dtype)(x)
        x = x + MlpBlock(self.mlp_dim, self.dtype)(y)
        return x[:, 0]


def _attention(heads: int, dtype: str) -> nn.MultiHeadDotProductAttention:
    return nn.MultiHeadDotProductAttention(
        num_heads=heads,
        dtype=dtype,
        kernel_init=nn.initializers.xavier_uniform(),
        deterministic=True,
        force_fp32_for_softmax=True,
    )


def _rematerialized(remat: str) -> type[nn.Module]:
    """`EncoderBlock` that keeps for its backward pass what `Execution.remat` says."""
    if remat == "none":
        return EncoderBlock
    # Products with weights have no batch dimension, attention's have two.
    policy = jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims if remat == "dots" else None
    rematerialized: type[nn.Module] = nn.remat(EncoderBlock, policy=policy)
    return rematerialized
