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

_SECTIONS = {"img": "vision_config", "txt": "text_config"}
_DEFAULT_HEADS = 12  # of SiglipVisionConfig and SiglipTextConfig: defaults are left out of config.json
_SIZES = {
    "hidden_size": "width",
    "intermediate_size": "mlp_dim",
    "num_hidden_layers": "depth",
    "num_attention_heads": "heads",
    "image_size": "image_size",
    "patch_size": "patch_size",
    "vocab_size": "vocabulary_size",
    "max_position_embeddings": "length",
    "projection_size": "embedding_dim",
}
"""Key in config.json → field of our config."""

_FIXED = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}
_FIXED_VISION = {"num_channels": 3, "vision_use_head": True}


def heads(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attention heads of the towers "img" and "txt", as the content of a config.json has them.

    Raises:
        ValueError: It describes models that our towers can't represent; names the key.
    """
    if (kind := config.get("model_type")) not in ("siglip", "siglip2"):
        raise ValueError(f"config.json: model_type {kind!r} is not supported: expected siglip or siglip2")
    found = {}
    for tower, key in _SECTIONS.items():
        section = config.get(key, {})
        if not isinstance(section, dict):
            raise ValueError(f"config.json: {key} must be a mapping")
        for name, supported in (_FIXED | _FIXED_VISION).items():
            if (value := section.get(name, supported)) != supported:
                raise ValueError(
                    f"config.json: {key}.{name} {value!r} is not supported: expected {supported!r}"
                )
        found[tower] = section.get("num_attention_heads", _DEFAULT_HEADS)
    return found


def check_sizes(config: Mapping[str, Any], model: TwoTowers) -> None:
    """Raise ValueError if sizes in the content of a config.json aren't those of the towers."""
    expected = config_json(model)
    for section in _SECTIONS.values():
        for key in _SIZES.keys() & expected[section].keys():
            value, size = config.get(section, {}).get(key), expected[section][key]
            if key == "image_size" and isinstance(value, int):
                value -= value % model.vision.patch_size  # the model ignores an incomplete last patch
            if value is not None and value != size:
                raise ValueError(f"config.json: {section}.{key} is {value!r}, but the tensors have {size}")


def config_json(model: TwoTowers) -> dict[str, Any]:
    """Return the content of the config.json of these towers, for `SiglipModel.from_pretrained`."""
    return {
        "architectures": ["SiglipModel"],
        "model_type": "siglip",
        "dtype": "float32",
        "vision_config": {
            "model_type": "siglip_vision_model",
            "attention_dropout": 0.0,
            **_sizes(model.vision),
            **_FIXED,
            **_FIXED_VISION,
        },
        "text_config": {
            "model_type": "siglip_text_model",
            "attention_dropout": 0.0,
            "pad_token_id": 1,  # SigLIP pads with the end token
            "bos_token_id": None,
            "eos_token_id": 1,
            "projection_size": model.embedding_dim,
            **_sizes(model.text),
            **_FIXED,
        },
    }


def _sizes(tower: VisionTower | TextTower) -> dict[str, int]:
    """Return the sizes of a tower in the terms of config.json."""
    sizes = tower.model_dump() | {"mlp_dim": tower.mlp_dim or 4 * tower.width}
    return {key: sizes[field] for key, field in _SIZES.items() if field in sizes}


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
