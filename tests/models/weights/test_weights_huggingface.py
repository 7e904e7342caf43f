"""Against transformers' own SiglipModel: the same embeddings, and its state dict out as it came in."""

import contextlib
import json

import jax
import numpy as np
import pytest

from jestlab.models.two_towers import TwoTowerModel, embed
from jestlab.models.weights import open_weights, unflatten, write

with contextlib.suppress(ImportError):  # the mark skips then
    import torch
    import transformers

pytestmark = pytest.mark.oracle

TEXT = {
    "vocab_size": 64,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 6,
    "bos_token_id": None,
    "eos_token_id": 1,
}
VISION = {
    "hidden_size": 24,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": 16,
    "patch_size": 4,
}


@pytest.fixture(scope="module")
def theirs():
    """Random weights of a size at which every one of them matters."""
    config = transformers.SiglipConfig(text_config=TEXT, vision_config=VISION)
    model = transformers.SiglipModel(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="module")
def folder(theirs, tmp_path_factory):
    """As transformers saves it."""
    folder = tmp_path_factory.mktemp("siglip")
    theirs.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
    return images, rng.integers(0, 64, (5, 6), dtype=np.int32)


def embedded(weights, images, tokens):
    """By our model; compiled whole, which is quicker than operation by operation."""
    forward = jax.jit(lambda parameters: embed(TwoTowerModel(weights.model), parameters, images, tokens))
    return forward(unflatten(weights.tensors()))


def state(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def test_our_embeddings_are_theirs(theirs, folder, inputs):
    images, tokens = inputs
    ours = embedded(open_weights(folder), images, tokens)
    pixels = torch.tensor(images.transpose(0, 3, 1, 2)) / 127.5 - 1.0
    with torch.no_grad():
        out = theirs(input_ids=torch.tensor(tokens, dtype=torch.long), pixel_values=pixels)
    np.testing.assert_allclose(ours.image, out.image_embeds.numpy(), atol=1e-5)
    np.testing.assert_allclose(ours.text, out.text_embeds.numpy(), atol=1e-5)
    logits = ours.image @ ours.text.T * ours.temperature + ours.bias
    np.testing.assert_allclose(logits, out.logits_per_image.numpy(), atol=1e-4)


def test_its_state_comes_out_as_it_came_in(folder, tmp_path):
    write(open_weights(folder), tmp_path / "out", "huggingface")
    before, after = state(folder), state(tmp_path / "out")
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


def test_transformers_loads_what_we_write(folder, tmp_path, theirs, inputs, pieces):
    write(open_weights(folder), tmp_path / "out", "huggingface", tokenizer=pieces)
    loaded, about = transformers.SiglipModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(about.values()), about
    assert loaded.config.vision_config.num_attention_heads == 3
    pixels = torch.tensor(inputs[0].transpose(0, 3, 1, 2)) / 127.5 - 1.0
    tokens = torch.tensor(inputs[1], dtype=torch.long)
    with torch.no_grad():
        first = theirs(input_ids=tokens, pixel_values=pixels)
        second = loaded.eval()(input_ids=tokens, pixel_values=pixels)
    assert torch.equal(first.logits_per_image, second.logits_per_image)
    assert (tmp_path / "out" / "spiece.model").read_bytes() == pieces


def test_our_model_loads_there(tmp_path, make_weights, towers, inputs):
    """Weights of towers of different widths, none of them ever theirs."""
    weights = make_weights(towers)
    write(weights, tmp_path / "out", "huggingface")
    loaded = transformers.SiglipModel.from_pretrained(tmp_path / "out").eval()
    images, tokens = inputs
    ours = embedded(weights, images, tokens)
    pixels = torch.tensor(images.transpose(0, 3, 1, 2)) / 127.5 - 1.0
    with torch.no_grad():
        out = loaded(input_ids=torch.tensor(tokens, dtype=torch.long), pixel_values=pixels)
    np.testing.assert_allclose(ours.image, out.image_embeds.numpy(), atol=2e-5)
    np.testing.assert_allclose(ours.text, out.text_embeds.numpy(), atol=2e-5)


def test_shards(theirs, folder, tmp_path):
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert open_weights(tmp_path).digest() == open_weights(folder).digest()
    assert open_weights(tmp_path / "model.safetensors.index.json").digest() == open_weights(folder).digest()
    next(tmp_path.glob("model-00002*")).unlink()
    with pytest.raises(FileNotFoundError, match=r"model-00002-of-\d+.safetensors: no such file"):
        open_weights(tmp_path)


def test_bfloat16_is_read_exactly(theirs, tmp_path):
    import copy

    half = copy.deepcopy(theirs).to(torch.bfloat16)
    half.save_pretrained(tmp_path)
    found = open_weights(tmp_path).tensors()
    exact = half.text_model.head.weight.detach().to(torch.float32).numpy().T
    assert np.array_equal(found["txt/head/kernel"], exact)
    assert found["t"].item() == half.logit_scale.to(torch.float32).item()


def test_a_file_alone_has_the_usual_heads(tmp_path):
    """Without config.json: 12 of width 768, which shapes do not tell; jax is not asked for any of it."""
    from safetensors.numpy import save_file

    from jestlab.models.config import TwoTowers
    from jestlab.models.weights import huggingface

    sizes = {"width": 768, "depth": 1, "heads": 12, "mlp_dim": 8}
    model = TwoTowers.model_validate(
        {
            "vision": sizes | {"image_size": 16, "patch_size": 8},
            "text": sizes | {"vocabulary_size": 8, "length": 4},
            "embedding_dim": 768,
        }
    )
    save_file(
        {entry.name: np.zeros(entry.shape, np.float32) for entry in huggingface.entries(model)},
        tmp_path / "alone.safetensors",
    )
    assert open_weights(tmp_path / "alone.safetensors").model == model


def test_odd_widths_need_config_json(folder, tmp_path):
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(
        ValueError, match=r"number of heads unknown for width 24: put its config.json beside it"
    ):
        open_weights(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("model_type",), "clip", r"model_type 'clip' is not supported, only 'siglip' and 'siglip2' are"),
        (("vision_config", "hidden_act"), "gelu", r"vision_config.hidden_act 'gelu' is not supported"),
        (("text_config", "layer_norm_eps"), 1e-5, r"text_config.layer_norm_eps 1e-05 is not supported"),
        (("vision_config", "vision_use_head"), False, r"vision_use_head False is not supported"),
        (("vision_config", "hidden_size"), 32, r"vision_config.hidden_size is 32, but the tensors have 24"),
        (("vision_config", "image_size"), 32, r"vision_config.image_size is 32, but the tensors have 16"),
        (("text_config", "num_attention_heads"), 5, r"num_attention_heads 5 does not divide hidden_size 24"),
        (
            ("text_config", "projection_size"),
            12,
            r"text_config.projection_size is 12, but the tensors have 24",
        ),
        (("text_config",), 3, r"text_config must be a mapping"),
    ],
)
def test_what_is_not_supported_is_said(folder, tmp_path, place, value, message):
    config = json.loads((folder / "config.json").read_text())
    section = config if len(place) == 1 else config[place[0]]
    section[place[-1]] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=message) as error:
        open_weights(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_defaults_left_out_of_config_json(folder, tmp_path):
    """Published ones say hardly anything: the heads are then 12, and pixels beyond the last patch unseen."""
    config = {"model_type": "siglip", "vision_config": {"num_attention_heads": 3, "image_size": 18}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    model = open_weights(tmp_path).model
    assert (model.vision.heads, model.text.heads) == (3, 12)
    assert model.vision.image_size == 16


def test_texts_in_another_space_than_images(theirs, tmp_path):
    config = transformers.SiglipConfig(text_config={**TEXT, "projection_size": 12}, vision_config=VISION)
    transformers.SiglipModel(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"texts in 12 dimensions \(projection_size\) and images in 24"):
        open_weights(tmp_path)
