"""The files next to the tensors in a Hugging Face folder, as `AutoModel` and `AutoProcessor` read them.

    config.json                 the sizes of the towers
    preprocessor_config.json    images: resized to a square bilinearly, from 0 … 255 to −1 … 1
    tokenizer.json              captions: lower case, pieces, the end token, cut and padded to a length
    tokenizer_config.json       the class that reads the tokenizer
    spiece.model                the sentencepiece model, if the tokenizer is one; jestlab reads it again

Hugging Face's `SiglipTokenizer` removes punctuation, and jestlab doesn't. Therefore the sentencepiece model
is also written as a `tokenizer.json`, which gives the same tokens as in training.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.data.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
SENTENCEPIECE, TOKENIZER = "spiece.model", "tokenizer.json"
_IMAGES, _CAPTIONS = "preprocessor_config.json", "tokenizer_config.json"

FILES = (WEIGHTS, CONFIG, SENTENCEPIECE, TOKENIZER, _IMAGES, _CAPTIONS)
"""Names of all files that are written."""

_ENCODER = {
    "hidden_size": ("width", 768),
    "intermediate_size": ("mlp_dim", 3072),
    "num_hidden_layers": ("depth", 12),
    "num_attention_heads": ("heads", 12),
}
_IMAGE = {
    "image_size": ("image_size", 224),
    "patch_size": ("patch_size", 16),
    "num_patches": ("patches", 256),
}
_TEXT = {"vocab_size": ("vocabulary_size", 32_000), "max_position_embeddings": ("length", 64)}
_SIZES = {"vision_config": _ENCODER | _IMAGE, "text_config": _ENCODER | _TEXT}
"""Key in a section of config.json → field of our config, and default of transformers."""

_FIXED = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}
_FIXED_VISION = {"num_channels": 3, "vision_use_head": True}


def read_config(config: Mapping[str, Any]) -> TwoTowers:
    """Return the towers that the content of a config.json describes.

    Pixels beyond the last whole patch are ignored: a model of 384 px in patches of 14 reads 378 px. Models of
    any image size (SigLIP 2's NaFlex) read square images with as many patches as the model has positions.

    Raises:
        ValueError: Our towers can't represent the model, or a size isn't valid; names the key.
    """
    if (kind := config.get("model_type")) not in ("siglip", "siglip2"):
        raise ValueError(f"model_type {kind!r} is not supported: expected siglip or siglip2")
    towers: dict[str, dict[str, int]] = {"vision_config": {}, "text_config": {}}
    for key, tower in towers.items():
        section = config.get(key, {})
        if not isinstance(section, dict):
            raise ValueError(f"{key} must be a mapping")
        for name, supported in (_FIXED | _FIXED_VISION).items():
            if (value := section.get(name, supported)) != supported:
                raise ValueError(f"{key}.{name} is {value!r}, supported is only {supported!r}")
        for name, (field, default) in _SIZES[key].items():
            tower[field] = size = section.get(name, default)
            if type(size) is not int or size < 1:
                raise ValueError(f"{key}.{name} is {size!r}, expected a positive integer")
    vision, text = towers.values()
    patches, size = vision.pop("patches"), vision["patch_size"]
    side = math.isqrt(patches) if kind == "siglip2" else vision["image_size"] // size
    vision["image_size"] = side * size
    embedding = config.get("text_config", {}).get("projection_size") or text["width"]
    return TwoTowers.model_validate({"vision": vision, "text": text, "embedding_dim": embedding})


def config_json(model: TwoTowers) -> dict[str, Any]:
    """Return the content of the config.json of these towers, for `SiglipModel.from_pretrained`."""

    def section(key: str, tower: VisionTower | TextTower) -> dict[str, Any]:
        sizes = tower.model_dump() | {"mlp_dim": tower.mlp_dim or 4 * tower.width}
        found = {name: sizes[field] for name, (field, _) in _SIZES[key].items() if field in sizes}
        return found | _FIXED | {"attention_dropout": 0.0}

    return {
        "architectures": ["SiglipModel"],
        "model_type": "siglip",
        "dtype": "float32",
        "vision_config": {
            "model_type": "siglip_vision_model",
            **section("vision_config", model.vision),
            **_FIXED_VISION,
        },
        "text_config": {
            "model_type": "siglip_text_model",
            **section("text_config", model.text),
            "projection_size": model.embedding_dim,
            "pad_token_id": 1,  # SigLIP pads with the end token
            "bos_token_id": None,
            "eos_token_id": 1,
        },
    }


def write_files(folder: Path, model: TwoTowers, tokenizer: bytes | None) -> None:
    """Write all files except the tensors; without a tokenizer, only those of the model and of images.

    Raises:
        ValueError: The tokenizer isn't one, or is a sentencepiece model of another kind than unigram.
    """
    _write_json(folder / CONFIG, config_json(model))
    images = {
        "image_processor_type": "SiglipImageProcessor",
        "processor_class": "SiglipProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"height": model.vision.image_size, "width": model.vision.image_size},
        "resample": 2,  # bilinear, by Pillow's numbers
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    _write_json(folder / _IMAGES, images)
    if tokenizer is None:
        return
    from tokenizers import Tokenizer as TheirTokenizer
    from tokenizers import normalizers, processors

    ours = Tokenizer(tokenizer)
    if ours.is_json:
        theirs = TheirTokenizer.from_buffer(tokenizer)
    else:
        theirs = _from_sentencepiece(tokenizer)
        (folder / SENTENCEPIECE).write_bytes(tokenizer)
    length, end_id, pad_id = model.text.length, ours.pieces.end, ours.pieces.pad
    end, pad = str(theirs.id_to_token(end_id)), str(theirs.id_to_token(pad_id))
    steps = [normalizers.Lowercase(), *([theirs.normalizer] if theirs.normalizer else [])]
    theirs.normalizer = normalizers.Sequence(steps)
    theirs.post_processor = processors.TemplateProcessing(single=["$A", end], special_tokens=[(end, end_id)])
    theirs.enable_truncation(length)
    theirs.enable_padding(pad_token=pad, pad_id=pad_id, length=length)
    theirs.save(str(folder / TOKENIZER))
    captions = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "processor_class": "SiglipProcessor",
        "model_input_names": ["input_ids"],
        "model_max_length": length,
        "padding_side": "right",
        "truncation_side": "right",
        "eos_token": end,
        "pad_token": pad,
        "split_special_tokens": True,  # captions contain no special tokens, only texts like them
    }
    _write_json(folder / _CAPTIONS, captions)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


# Numbers of fields in sentencepiece_model.proto: of the model, of its trainer, and of its normalizer.
_TRAINER, _NORMALIZER = 2, 3
_KIND, _BYTES, _UNIGRAM = 3, 35, 1
_CHARSMAP, _DUMMY_PREFIX, _NO_EXTRA_SPACES = 2, 3, 4


def _from_sentencepiece(content: bytes) -> tokenizers.Tokenizer:
    """Convert a sentencepiece unigram model to a tokenizer of Hugging Face's library."""
    from sentencepiece import SentencePieceProcessor
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    parts = _fields(content)
    trainer, normal = (_fields(parts.get(number, b"")) for number in (_TRAINER, _NORMALIZER))
    if trainer.get(_KIND, _UNIGRAM) != _UNIGRAM:
        raise ValueError("the tokenizer is not a unigram model: export the weights without it")
    model = SentencePieceProcessor(model_proto=content)
    # Sentencepiece never finds control pieces in a text; Hugging Face's library would. With a space, it finds
    # none either, because spaces become "▁".
    pieces = [
        (model.id_to_piece(i) + " " * (model.is_control(i) or model.is_unknown(i)), model.get_score(i))
        for i in range(model.get_piece_size())
    ]
    found = Tokenizer(models.Unigram(pieces, model.unk_id(), bool(trainer.get(_BYTES, 0))))
    steps: list[Any] = []
    if charsmap := normal.get(_CHARSMAP):
        steps.append(normalizers.Precompiled(charsmap))
    if normal.get(_NO_EXTRA_SPACES, 1):
        # Only spaces, because sentencepiece preserves other white space that the map above has left.
        steps += [normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    found.normalizer = normalizers.Sequence(steps)
    scheme = "always" if normal.get(_DUMMY_PREFIX, 1) else "never"
    found.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
    found.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    return found


def _fields(message: bytes) -> dict[int, Any]:
    """Return number → value of the fields in a protobuf message; of repeated fields, the last value.

    Sentencepiece's own classes require another version of protobuf than XManager allows.
    """
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    return {field.field_number: field.data for field in UnknownFieldSet(Empty.FromString(message))}
