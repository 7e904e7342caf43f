"""The transformer encoder that both towers share: pre-norm blocks and tanh-GELU as in SigLIP's public code.

Parameter names are those that flax.linen gives the same modules in big_vision, so that its trees fit.
Parameters are float32. Products are computed in `dtype`; normalization statistics and the softmax in float32.

Letters: n examples, L tokens, D width, m rows of a matrix (the tokens of all examples).
"""

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal, cast

import flax.linen as nn
import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Execution:
    """How an encoder is computed: this affects memory and compile time, never the values.

    Attributes:
        remat: What the backward pass recomputes instead of storing. "none": nothing. "dots": all but products
            with weights; attention's products, whose results grow with L², are recomputed. "all": whole
            blocks, from their inputs.
        scan: Whether the blocks are one loop over their stacked parameters, which compiles faster.
    """

    remat: Literal["none", "dots", "all"] = "none"
    scan: bool = False


class LayerNorm(nn.Module):
    """Layer normalization, (x − mean) / √(variance + 1e-6) · scale + bias over the last axis."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalize x: float [..., D] → float [..., D]."""
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:])
        return _layer_norm(x, scale, bias)


@jax.custom_vjp
def _layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    return _layer_norm_forward(x, scale, bias)[0]


def _layer_norm_forward(x: jax.Array, scale: jax.Array, bias: jax.Array) -> tuple[jax.Array, Any]:
    wide = x.astype(jnp.float32)
    mean = wide.mean(axis=-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(variance + 1e-6)
    y = (wide - mean) * (inverse * scale) + bias
    return y.astype(x.dtype), (x, mean, inverse, scale)


def _layer_norm_backward(residuals: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute gradients: with x̂ = (x − mean)/σ and g = dy · scale, dx = (g − mean(g) − x̂ · mean(g x̂)) / σ.

    This needs only x and two numbers per token from the forward pass. Automatic differentiation stores and
    sums more: a training step on CPU took 10% more processor time.
    """
    x, mean, inverse, scale = residuals
    normalized = (x.astype(jnp.float32) - mean) * inverse
    dy = dy.astype(jnp.float32)
    g = dy * scale
    dx = g - g.mean(axis=-1, keepdims=True)
    dx = inverse * (dx - normalized * (g * normalized).mean(axis=-1, keepdims=True))
    tokens = tuple(range(x.ndim - 1))
    return dx.astype(x.dtype), (dy * normalized).sum(axis=tokens), dy.sum(axis=tokens)


_layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


class MlpBlock(nn.Module):
    """Two dense layers with a tanh-GELU in between."""

    hidden_dim: int
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply both layers: float [m, D] → float [m, D]."""
        dense = functools.partial(
            nn.Dense,
            dtype=self.dtype,
            kernel_init=nn.initializers.xavier_uniform(),
            bias_init=nn.initializers.normal(stddev=1e-6),
        )
        width = x.shape[-1]
        x = nn.gelu(dense(self.hidden_dim)(x), approximate=True)
        return dense(width)(x)


class Projection(nn.Module):
    """A dense layer whose parameters have flax's shapes for attention, with the width split into heads.

    The kernel has shape [*inputs, *outputs]. Gradients round differently from those of `nn.DenseGeneral`.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtype: str

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Project x: float [m, product of inputs] → float [m, product of outputs]."""
        matrix = (math.prod(self.inputs), math.prod(self.outputs))

        def initialize(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            return nn.initializers.xavier_uniform()(key, matrix).reshape(shape)

        kernel = self.param("kernel", initialize, (*self.inputs, *self.outputs))
        bias = self.param("bias", nn.initializers.zeros, self.outputs)
        return x @ kernel.astype(self.dtype).reshape(matrix) + bias.astype(self.dtype).reshape(-1)


class MultiHeadDotProductAttention(nn.Module):
    """Attention with flax's parameters, on the tokens of all examples as one matrix."""

    heads: int
    dtype: str

    @nn.compact
    def __call__(self, queries: jax.Array, tokens: jax.Array, examples: int) -> jax.Array:
        """Attend to the tokens of each of n examples: float [n · Q, D], float [n · L, D] → [n · Q, D]."""
        width = tokens.shape[-1]
        split = (self.heads, width // self.heads)

        def projected(name: str, x: jax.Array) -> jax.Array:
            y: jax.Array = Projection((width,), split, self.dtype, name=name)(x)
            return y.reshape(examples, -1, *split).swapaxes(1, 2)

        q = projected("query", queries) / jnp.sqrt(split[1]).astype(self.dtype)
        logits = jnp.einsum("nhqd,nhkd->nhqk", q, projected("key", tokens))
        weights = jax.nn.softmax(logits.astype(jnp.float32)).astype(self.dtype)
        x = jnp.einsum("nhqk,nhkd->nhqd", weights, projected("value", tokens)).swapaxes(1, 2)
        return Projection(split, (width,), self.dtype, name="out")(x.reshape(-1, width))


class EncoderBlock(nn.Module):
    """Attention, then an MLP, each on the normalized residual stream: x + f(LN(x)).

    Internally, the tokens of all examples are the rows of one matrix: on CPU, loss and gradient took 257 ms
    of processor time, and 310 ms with a separate axis (32 px, width 192, depth 4; 2026-11-21).
    """

    heads: int
    mlp_dim: int
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply the block: float [n, L, D] → float [n, L, D]."""
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        y = LayerNorm()(x)
        x = x + MultiHeadDotProductAttention(self.heads, self.dtype)(y, y, shape[0])
        y = LayerNorm()(x)
        x = x + MlpBlock(self.mlp_dim, self.dtype)(y)
        return x.reshape(shape)


# Products with weights have no batch dimension, those of attention have two.
_DOTS = jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims
_BLOCKS = {"none": EncoderBlock, "dots": nn.remat(EncoderBlock, policy=_DOTS), "all": nn.remat(EncoderBlock)}


class Encoder(nn.Module):
    """A stack of `depth` blocks and a final normalization.

    The parameter tree is `{encoderblock_0: …, encoderblock_1: …, encoder_norm: …}` under every execution.
    """

    depth: int
    heads: int
    mlp_dim: int
    dtype: str = "float32"
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Encode x: float [n, L, D] → float [n, L, D]."""
        block = functools.partial(_BLOCKS[self.execution.remat], self.heads, self.mlp_dim, self.dtype)
        if self.execution.scan and not self.is_initializing():
            x = self._scan(block(parent=None), x)
        else:
            for layer in range(self.depth):
                x = block(name=f"encoderblock_{layer}")(x)
        return LayerNorm(name="encoder_norm")(x)

    def _scan(self, block: nn.Module, x: jax.Array) -> jax.Array:
        """Run all blocks as one loop. Stacking the parameters here keeps the same tree outside."""
        layers = [self.variables["params"][f"encoderblock_{layer}"] for layer in range(self.depth)]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)

        def body(x: jax.Array, parameters: Any) -> tuple[jax.Array, None]:
            return cast(jax.Array, block.apply({"params": parameters}, x)), None

        return jax.lax.scan(body, x, stacked)[0]


class MAPHead(nn.Module):
    """Multi-head attention pooling: one learned probe attends to all tokens (Zhai et al., 2022, Sec. 2.1)."""

    heads: int
    mlp_dim: int
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Pool the tokens: float [n, L, D] → float [n, D]."""
        n, _, width = x.shape
        probe = self.param("probe", nn.initializers.xavier_uniform(), (1, 1, width))
        probes = jnp.tile(probe[0].astype(x.dtype), (n, 1))
        y = MultiHeadDotProductAttention(self.heads, self.dtype)(probes, x.reshape(-1, width), n)
        return y + MlpBlock(self.mlp_dim, self.dtype)(LayerNorm()(y))
