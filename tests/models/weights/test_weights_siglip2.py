"""SigLIP 2 and Gemma's tokenizer against transformers; exports that `AutoModel` and `AutoProcessor` open."""

from __future__ import annotations

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from jestlab.models.data.tokenizer import Tokenizer, train_tokenizer
from jestlab.models.two_towers import TwoTowerModel, embed
from jestlab.models.weights import open_weights, read_tokenizer, unflatten, write

with contextlib.suppress(ImportError):  # the mark skips then
    import torch
    import transformers
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

pytestmark = pytest.mark.oracle

CAPTIONS = [
    "a red circle on a green field",
    "two blue squares, one above the other",
    "IMG_2041.jpg",
    "the quick brown fox jumps over the lazy dog",
    "a photo of a cat",
]
LENGTH = 8


@pytest.fixture(scope="module")
def gemma():
    """A tokenizer.json as SigLIP 2's is made of Gemma's: BPE with bytes to fall back on."""
    library = Library(models.BPE(fuse_unk=True, unk_token="<unk>", byte_fallback=True))
    library.normalizer = normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Split(pattern=" ", behavior="merged_with_previous")
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=special, show_progress=False)
    library.train_from_iterator([caption.lower() for caption in CAPTIONS * 5], trainer)
    library.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    return library.to_str().encode()


def theirs_of(gemma, tmp_path_factory):
    """The same in transformers, with the settings of SigLIP 2's conversion script."""
    path = tmp_path_factory.mktemp("gemma") / "tokenizer.json"
    path.write_bytes(gemma)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(path), padding_side="right", pad_token="<pad>", eos_token="<eos>"
    )


def padded(tokenizer, captions):
    found = tokenizer(
        [caption.lower() for caption in captions],
        padding="max_length",
        truncation=True,
        max_length=LENGTH,
        return_tensors="np",
    )
    return found["input_ids"]


def test_captions_become_the_tokens_of_transformers(gemma, tmp_path_factory):
    theirs = theirs_of(gemma, tmp_path_factory)
    captions = [*CAPTIONS, "", "Ünïcödé 猫", "x" * 100, "  two  spaces "]
    assert Tokenizer(gemma)(captions, LENGTH).tolist() == padded(theirs, captions).tolist()


def vision(**changes):
    common = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
    return common | {"patch_size": 4} | changes


def text(size):
    common = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
    return common | {"vocab_size": size, "max_position_embeddings": LENGTH, "projection_size": 24}


def randomised(model):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.fixture(scope="module")
def siglip2(gemma, tmp_path_factory):
    """A folder as SigLIP 2 of one image size comes: a SiglipModel, and a tokenizer.json."""
    folder = tmp_path_factory.mktemp("siglip2")
    config = transformers.SiglipConfig(text_config=text(512), vision_config=vision(image_size=16))
    model = randomised(transformers.SiglipModel(config))
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(gemma)
    return folder, model


def ours_of(folder, images, captions, length=LENGTH):
    weights = open_weights(folder)
    assert weights.tokenizer is not None
    tokens = jnp.asarray(Tokenizer(read_tokenizer(weights.tokenizer, weights.model))(captions, length))
    forward = jax.jit(lambda parameters: embed(TwoTowerModel(weights.model), parameters, images, tokens))
    return forward(unflatten(weights.tensors()))


IMAGES = np.random.default_rng(1).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)


def test_a_model_of_one_image_size_embeds_as_it_does_in_transformers(siglip2, gemma, tmp_path_factory):
    folder, model = siglip2
    ours = ours_of(folder, IMAGES, CAPTIONS)
    tokens = torch.tensor(padded(theirs_of(gemma, tmp_path_factory), CAPTIONS), dtype=torch.long)
    pixels = torch.tensor(IMAGES.transpose(0, 3, 1, 2)) / 127.5 - 1.0
    with torch.no_grad():
        theirs = model(input_ids=tokens, pixel_values=pixels)
    np.testing.assert_allclose(ours.image, theirs.image_embeds.numpy(), atol=1e-5)
    np.testing.assert_allclose(ours.text, theirs.text_embeds.numpy(), atol=1e-5)


def test_a_model_of_any_image_size_embeds_squares_as_it_does_in_transformers(gemma, tmp_path):
    config = transformers.Siglip2Config(text_config=text(512), vision_config=vision(num_patches=16))
    model = randomised(transformers.Siglip2Model(config))
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(gemma)
    ours = ours_of(tmp_path, IMAGES, CAPTIONS)
    cut = (
        IMAGES.reshape(5, 4, 4, 4, 4, 3).swapaxes(2, 3).reshape(5, 16, 48)
    )  # patches, rows of each, channels
    with torch.no_grad():
        theirs = model(
            input_ids=torch.tensor(Tokenizer(gemma)(CAPTIONS, LENGTH), dtype=torch.long),
            pixel_values=torch.tensor(cut) / 127.5 - 1.0,
            pixel_attention_mask=torch.ones(5, 16, dtype=torch.int32),
            spatial_shapes=torch.full((5, 2), 4),
        )
    np.testing.assert_allclose(ours.image, theirs.image_embeds.numpy(), atol=1e-5)
    np.testing.assert_allclose(ours.text, theirs.text_embeds.numpy(), atol=1e-5)


@pytest.fixture(scope="module")
def exported(siglip2, gemma, tmp_path_factory):
    """The same weights as jestlab exports them: with SigLIP 2's tokenizer, and with one of jestlab's own."""
    folder, _ = siglip2
    out = tmp_path_factory.mktemp("exported")
    own = train_tokenizer(CAPTIONS, 128).model
    for name, tokenizer in (("gemma", gemma), ("own", own)):
        write(open_weights(folder), out / name, "huggingface", tokenizer=tokenizer)
    return {name: (out / name, Tokenizer(content)) for name, content in (("gemma", gemma), ("own", own))}


@pytest.mark.parametrize("name", ["gemma", "own"])
def test_automodel_and_autoprocessor_open_an_export(exported, name):
    folder, _ = exported[name]
    processor = transformers.AutoProcessor.from_pretrained(folder)
    assert type(processor).__name__ == "SiglipProcessor"
    model = transformers.AutoModel.from_pretrained(folder).eval()
    images = [Image.fromarray(image) for image in IMAGES]
    inputs = processor(
        text=CAPTIONS, images=images, padding="max_length", truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        theirs = model(**inputs)
    ours = ours_of(folder, IMAGES, CAPTIONS)
    np.testing.assert_allclose(ours.image, theirs.image_embeds.numpy(), atol=1e-5)
    np.testing.assert_allclose(ours.text, theirs.text_embeds.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", ["gemma", "own"])
@given(caption=st.text(st.sampled_from("abcdefgh oxyzRQ.,_-'!?0123456789 éßİ猫\t"), max_size=40))
def test_an_export_reads_every_caption_as_jestlab_does(exported, processors_of, name, caption):
    found = processors_of[name](text=[caption], padding="max_length", truncation=True, return_tensors="np")
    assert found["input_ids"].tolist() == exported[name][1]([caption], LENGTH).tolist()


@pytest.fixture(scope="module")
def processors_of(exported):
    return {
        name: transformers.AutoProcessor.from_pretrained(folder) for name, (folder, _) in exported.items()
    }


@pytest.mark.parametrize("name", ["gemma", "own"])
def test_an_export_comes_back_as_it_was(exported, siglip2, name, tmp_path):
    folder, tokenizer = exported[name]
    again = open_weights(folder)
    assert again.digest() == open_weights(siglip2[0]).digest()
    assert again.tokenizer is not None
    captions = [*CAPTIONS, "Some OTHER words."]
    back = Tokenizer(read_tokenizer(again.tokenizer, again.model))
    assert back(captions, LENGTH).tolist() == tokenizer(captions, LENGTH).tolist()
    if name == "own":  # the sentencepiece model itself
        assert back.model == tokenizer.model
    write(again, tmp_path / "twice", "huggingface", tokenizer=back.model)
    one, two = (
        sorted(path.name for path in where.iterdir() if path.is_file())
        for where in (folder, tmp_path / "twice")
    )
    assert one == two


def test_a_tokenizer_json_that_is_none_is_told(tmp_path, siglip2):
    model = open_weights(siglip2[0]).model
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(ValueError, match=r"tokenizer\.json: not a tokenizer\.json of Hugging Face's library"):
        read_tokenizer(tmp_path / "tokenizer.json", model)
    other = Library(models.WordLevel({"<eos>": 0, "<pad>": 1, "<bos>": 2, "a": 3}, unk_token="a"))
    other.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="its end piece is 0, should be 1"):
        read_tokenizer(tmp_path / "tokenizer.json", model)
