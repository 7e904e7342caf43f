"""Against transformers' SigLIP and SigLIP 2: the same embeddings and tokens, exports that it opens."""

from typing import Any

import jax
import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from jestlab.models.data.tokenizer import Tokenizer, train_tokenizer
from jestlab.models.two_towers import TwoTowerModel, embed
from jestlab.models.weights.huggingface import read_config
from jestlab.models.weights.parameters import unflatten
from jestlab.models.weights.sources import open_weights, read_tokenizer, write

pytestmark = pytest.mark.oracle

LENGTH = 8
CAPTIONS = [
    "a red circle on a green field",
    *("two blue squares, one above the other", "IMG_2041.jpg", "a photo of a cat"),
    "the quick brown fox jumps over the lazy dog",
]
IMAGES = np.random.default_rng(1).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
TEXT: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 40, "num_hidden_layers": 2}
VISION = {"hidden_size": 24, "intermediate_size": 72, "num_hidden_layers": 3, "num_attention_heads": 3}
VISION |= {"image_size": 16, "patch_size": 4}
TEXT |= {"num_attention_heads": 4, "vocab_size": 512, "max_position_embeddings": LENGTH}
TEXT |= {"bos_token_id": None, "eos_token_id": 1, "projection_size": 24}


@pytest.fixture(scope="module")
def transformers():
    """The library, whose import takes seconds."""
    import transformers

    return transformers


def saved(model, tokenizer, folder):
    """As transformers saves it, with random weights of a size at which every one of them matters."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(tokenizer)
    return model


@pytest.fixture(scope="module")
def gemma():
    """A tokenizer.json like SigLIP 2's, which is made of Gemma's: BPE with bytes to fall back on."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

    library = Library(models.BPE(fuse_unk=True, unk_token="<unk>", byte_fallback=True))
    library.normalizer = normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Split(pattern=" ", behavior="merged_with_previous")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=special, show_progress=False)
    library.train_from_iterator([caption.lower() for caption in CAPTIONS * 5], trainer)
    library.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    return library.to_str().encode()


@pytest.fixture(scope="module")
def folder(transformers, gemma, tmp_path_factory):
    folder = tmp_path_factory.mktemp("siglip")
    config = transformers.SiglipConfig(text_config=TEXT, vision_config=VISION)
    saved(transformers.SiglipModel(config), gemma, folder)
    return folder


def embedded(weights, tokens):
    """By our model; compiled whole, which is faster than operation by operation."""
    model = TwoTowerModel(weights.model)
    forward = jax.jit(lambda parameters, *inputs: embed(model, parameters, *inputs))
    return forward(unflatten(weights.tensors()), IMAGES, tokens)


def outputs(model, tokens, **images):
    """Apply transformers' model to tokens and images."""
    import torch

    inputs = {"input_ids": tokens.astype(np.int64), **images}
    with torch.no_grad():
        return model.eval()(**{name: torch.tensor(x) for name, x in inputs.items()})


def assert_same_embeddings(ours, theirs):
    np.testing.assert_allclose(ours.image, theirs.image_embeds.numpy(), atol=1e-5)
    np.testing.assert_allclose(ours.text, theirs.text_embeds.numpy(), atol=1e-5)


def test_a_model_of_any_image_size_embeds_squares_the_same(transformers, gemma, tmp_path):
    config = transformers.Siglip2Config(text_config=TEXT, vision_config={**VISION, "num_patches": 16})
    model = saved(transformers.Siglip2Model(config), gemma, tmp_path)
    tokens = Tokenizer(gemma)(CAPTIONS, LENGTH)
    patches = IMAGES.reshape(5, 4, 4, 4, 4, 3).swapaxes(2, 3)  # rows of patches, rows of each, channels
    out = outputs(
        model,
        tokens,
        pixel_values=patches.reshape(5, 16, 48) / np.float32(127.5) - 1,
        pixel_attention_mask=np.ones((5, 16), np.int32),
        spatial_shapes=np.full((5, 2), 4),
    )
    assert_same_embeddings(embedded(open_weights(tmp_path), tokens), out)


def test_shards(transformers, folder, tmp_path):
    transformers.SiglipModel.from_pretrained(folder).save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert open_weights(tmp_path).digest() == open_weights(folder).digest()
    assert open_weights(tmp_path / "model.safetensors.index.json").digest() == open_weights(folder).digest()
    next(tmp_path.glob("model-00002*")).unlink()
    with pytest.raises(FileNotFoundError, match=r"model-00002-of-\d+.safetensors: no such file"):
        open_weights(tmp_path)


def test_defaults_left_out_of_config_json(transformers):
    """Published ones contain hardly anything. Pixels beyond the last patch are unused."""
    for kind, config in (("siglip", transformers.SiglipConfig()), ("siglip2", transformers.Siglip2Config())):
        assert read_config({"model_type": kind}) == read_config({"model_type": kind} | config.to_dict())
    vision = {"image_size": 384, "patch_size": 14}
    assert read_config({"model_type": "siglip", "vision_config": vision}).vision.image_size == 378


@pytest.fixture(scope="module", params=["gemma", "own"])
def export(request, transformers, folder, gemma, tmp_path_factory):
    """The weights with SigLIP 2's tokenizer or one of jestlab's: the folder, the tokenizer, a processor."""
    content = gemma if request.param == "gemma" else train_tokenizer(CAPTIONS, 128).model
    out = tmp_path_factory.mktemp("exported") / request.param
    write(open_weights(folder), out, "huggingface", tokenizer=content)
    return out, Tokenizer(content), transformers.AutoProcessor.from_pretrained(out)


def processed(processor, captions, **inputs):
    return processor(text=captions, padding="max_length", truncation=True, return_tensors="np", **inputs)


def test_an_export_is_opened_by_automodel_and_autoprocessor_and_read_back(transformers, export, folder):
    out, tokenizer, processor = export
    assert type(processor).__name__ == "SiglipProcessor"
    inputs = processed(processor, CAPTIONS, images=[Image.fromarray(image) for image in IMAGES])
    model, report = transformers.AutoModel.from_pretrained(out, output_loading_info=True)
    assert not any(report.values()), report
    theirs = outputs(model, inputs.pop("input_ids"), **inputs)
    again = open_weights(out)
    ours = embedded(again, tokenizer(CAPTIONS, LENGTH))
    assert_same_embeddings(ours, theirs)
    logits = ours.image @ ours.text.T * ours.temperature + ours.bias
    np.testing.assert_allclose(logits, theirs.logits_per_image.numpy(), atol=1e-4)
    assert again.digest() == open_weights(folder).digest()
    assert again.tokenizer is not None
    back, captions = Tokenizer(read_tokenizer(again.tokenizer, again.model)), [*CAPTIONS, "Some OTHER words."]
    assert back(captions, LENGTH).tolist() == tokenizer(captions, LENGTH).tolist()
    if out.name == "own":  # the sentencepiece model itself
        assert back.model == tokenizer.model


SPECIAL = ("</s>", "<s>", "<pad>", "<unk>", "<eos>", "<bos>", "</s> ")
LETTERS = "abcdefgh oxyzRQ.,_-'!?0123456789 éßİ猫\t</>"


@given(parts=st.lists(st.sampled_from([*LETTERS, *SPECIAL]), max_size=40))
@example(parts=["a ", "</s>", " b"])
@example(parts=["<eos>", "<pad>"])
@example(parts=["\x85", "a", " \x85\t"])
def test_an_export_reads_every_caption_as_jestlab_does(export, parts):
    """Special tokens in captions are texts."""
    out, tokenizer, processor = export
    caption = "".join(parts)
    expected, pieces = tokenizer([caption], LENGTH).tolist(), tokenizer.pieces
    assert not {pieces.end, pieces.begin, pieces.pad} & {*pieces.encode([caption])[0]}
    assert processed(processor, [caption])["input_ids"].tolist() == expected
    if out.name == "own":  # without the files of AutoProcessor
        assert tokenizers.Tokenizer.from_file(str(out / "tokenizer.json")).encode(caption).ids == expected[0]
