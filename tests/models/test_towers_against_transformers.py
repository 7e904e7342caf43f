"""The towers against Hugging Face's SigLIP with the same random weights: embeddings, logits and loss."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.losses import sigmoid_loss
from jestlab.models.two_towers import TwoTowerModel, embed, initialize

with contextlib.suppress(ImportError):  # the mark skips then
    import torch
    import transformers

pytestmark = pytest.mark.oracle

SMALL = TwoTowers(
    vision=VisionTower(image_size=24, patch_size=8, width=24, depth=2, heads=2, mlp_dim=40),
    text=TextTower(vocabulary_size=64, length=6, width=24, depth=3, heads=3, mlp_dim=56),
    embedding_dim=24,
)


def siglip(config):
    """Hugging Face's model of a config, with random weights, biases and normalisations."""

    def tower(t):
        mlp_dim = t.mlp_dim or 4 * t.width
        return {
            "hidden_size": t.width,
            "num_hidden_layers": t.depth,
            "num_attention_heads": t.heads,
            "intermediate_size": mlp_dim,
        }

    v, t = config.vision, config.text
    theirs = transformers.SiglipModel(
        transformers.SiglipConfig(
            vision_config=tower(v) | {"image_size": v.image_size, "patch_size": v.patch_size},
            text_config=tower(t)
            | {"vocab_size": t.vocabulary_size, "max_position_embeddings": t.length}
            | {"projection_size": config.embedding_dim, "bos_token_id": 2, "eos_token_id": 1},
        )
    ).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if parameter.ndim == 1 and name not in ("logit_scale", "logit_bias"):
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        theirs.logit_scale.fill_(2.0)
        theirs.logit_bias.fill_(-3.0)
    return theirs


def converted(config, state):
    """Their state dict as our parameter tree."""
    weights = {name: value.detach().numpy() for name, value in state.items()}

    def linear(name):
        return {"kernel": weights[f"{name}.weight"].T, "bias": weights[f"{name}.bias"]}

    def norm(name):
        return {"scale": weights[f"{name}.weight"], "bias": weights[f"{name}.bias"]}

    def mlp(name):
        return {"Dense_0": linear(f"{name}.fc1"), "Dense_1": linear(f"{name}.fc2")}

    def attention(projections, heads):
        width = projections["out"]["bias"].size
        tree = {
            part: {
                "kernel": projections[part]["kernel"].reshape(width, heads, -1),
                "bias": projections[part]["bias"].reshape(heads, -1),
            }
            for part in ("query", "key", "value")
        }
        out = projections["out"]
        return tree | {"out": {"kernel": out["kernel"].reshape(heads, -1, width), "bias": out["bias"]}}

    def encoder(name, tower, last):
        tree = {"encoder_norm": norm(last)}
        for i in range(tower.depth):
            layer = f"{name}.encoder.layers.{i}"
            names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}
            projections = {ours: linear(f"{layer}.self_attn.{theirs}") for ours, theirs in names.items()}
            tree[f"encoderblock_{i}"] = {
                "LayerNorm_0": norm(f"{layer}.layer_norm1"),
                "LayerNorm_1": norm(f"{layer}.layer_norm2"),
                "MultiHeadDotProductAttention_0": attention(projections, tower.heads),
                "MlpBlock_0": mlp(f"{layer}.mlp"),
            }
        return tree

    head = "vision_model.head"
    kernels = np.split(weights[f"{head}.attention.in_proj_weight"], 3)
    biases = np.split(weights[f"{head}.attention.in_proj_bias"], 3)
    pooling = {
        part: {"kernel": kernel.T, "bias": bias}
        for part, kernel, bias in zip(("query", "key", "value"), kernels, biases, strict=True)
    } | {"out": linear(f"{head}.attention.out_proj")}
    embeddings = "vision_model.embeddings"
    return {
        "img": {
            "embedding": {
                "kernel": weights[f"{embeddings}.patch_embedding.weight"].transpose(2, 3, 1, 0),
                "bias": weights[f"{embeddings}.patch_embedding.bias"],
            },
            "pos_embedding": weights[f"{embeddings}.position_embedding.weight"][None],
            "Transformer": encoder("vision_model", config.vision, "vision_model.post_layernorm"),
            "MAPHead_0": {
                "probe": weights[f"{head}.probe"],
                "MultiHeadDotProductAttention_0": attention(pooling, config.vision.heads),
                "LayerNorm_0": norm(f"{head}.layernorm"),
                "MlpBlock_0": mlp(f"{head}.mlp"),
            },
        },
        "txt": {
            "Embed_0": {"embedding": weights["text_model.embeddings.token_embedding.weight"]},
            "pos_embedding": weights["text_model.embeddings.position_embedding.weight"][None],
            "Encoder_0": encoder("text_model", config.text, "text_model.final_layer_norm"),
            "head": linear("text_model.head"),
        },
        "t": weights["logit_scale"],
        "b": weights["logit_bias"],
    }


@pytest.mark.parametrize("config", [SMALL, TwoTowers(variant="B/16")], ids=["small", "B/16"])
def test_embeddings_logits_and_loss_are_theirs(config):
    theirs = siglip(config)
    parameters = converted(config, theirs.state_dict())
    expected_tree = jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
    assert jax.tree.map(np.shape, parameters) == jax.tree.map(np.shape, expected_tree)

    rng = np.random.default_rng(0)
    v, t = config.vision, config.text
    images = rng.integers(0, 256, (2, v.image_size, v.image_size, 3)).astype(np.uint8)
    tokens = rng.integers(0, t.vocabulary_size, (2, t.length)).astype(np.int32)
    with torch.no_grad():
        pixels = torch.tensor(images).permute(0, 3, 1, 2).float() / 127.5 - 1
        expected = theirs(input_ids=torch.tensor(tokens).long(), pixel_values=pixels, return_loss=True)
    z = jax.jit(lambda p, *x: embed(TwoTowerModel(config), p, *x))(
        jax.tree.map(jnp.asarray, parameters), images, tokens
    )
    # Relative to the largest entry of a unit vector, whose others may be as near to 0 as they like.
    for ours, reference in ((z.image, expected.image_embeds), (z.text, expected.text_embeds)):
        reference = reference.numpy()
        np.testing.assert_allclose(ours, reference, rtol=1e-5, atol=1e-5 * np.abs(reference).max())
    logits = z.temperature * z.image @ z.text.T + z.bias
    theirs = expected.logits_per_image.numpy()
    np.testing.assert_allclose(logits, theirs, rtol=1e-5, atol=1e-5 * np.abs(theirs).max())
    np.testing.assert_allclose(sigmoid_loss(z), expected.loss.numpy(), rtol=1e-5)
