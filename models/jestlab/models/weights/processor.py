"""What Hugging Face's `AutoProcessor` reads beside exported weights: how images and captions become inputs.

Files of a folder:
    preprocessor_config.json    images: resized to a square bilinearly, from 0 … 255 to −1 … 1
    tokenizer.json              captions: lower case, pieces, the end token, cut and padded to a length
    tokenizer_config.json       which class reads it
    spiece.model                the sentencepiece model itself, which jestlab reads again

Their `SiglipTokenizer` leaves out punctuation, as it is wanted for names of classes, and jestlab does not. So
the sentencepiece model is written as a `tokenizer.json`, by which captions become what they were in training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.models.config import TwoTowers
from jestlab.models.data.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers

IMAGES, CAPTIONS, CLASS = "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"

FILES = (IMAGES, CLASS)
"""Names of what is written here besides tokenizers."""

_BILINEAR = 2  # of Pillow's ways to resample


def write(folder: Path, model: TwoTowers, tokenizer: bytes | None) -> None:
    """Write the files into a folder of exported weights; without a tokenizer, those of images alone.

    Raises:
        ValueError: The tokenizer is none.
    """
    size = {"height": model.vision.image_size, "width": model.vision.image_size}
    images = {
        "image_processor_type": "SiglipImageProcessor",
        "processor_class": "SiglipProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": size,
        "resample": _BILINEAR,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    _write_json(folder / IMAGES, images)
    if tokenizer is None:
        return
    from tokenizers import Tokenizer as TheirTokenizer

    ours = Tokenizer(tokenizer)
    theirs = TheirTokenizer.from_buffer(tokenizer) if ours.is_json else _from_sentencepiece(tokenizer)
    end, pad = (str(theirs.id_to_token(number)) for number in (ours.pieces.end, ours.pieces.pad))
    length = model.text.length
    _complete(theirs, (end, ours.pieces.end), (pad, ours.pieces.pad), length)
    theirs.save(str(folder / CAPTIONS))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "processor_class": "SiglipProcessor",
        "model_input_names": ["input_ids"],
        "model_max_length": length,
        "padding_side": "right",
        "truncation_side": "right",
        "eos_token": end,
        "pad_token": pad,
        "split_special_tokens": True,  # captions do not contain special tokens, only texts like them
    }
    _write_json(folder / CLASS, about)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def _complete(
    tokenizer: tokenizers.Tokenizer, end: tuple[str, int], pad: tuple[str, int], length: int
) -> None:
    """Make a tokenizer write lower case, end captions, and cut and pad them to a length."""
    from tokenizers import normalizers, processors

    steps = [normalizers.Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.post_processor = processors.TemplateProcessing(single=["$A", end[0]], special_tokens=[end])
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(pad_token=pad[0], pad_id=pad[1], length=length)


def _from_sentencepiece(content: bytes) -> tokenizers.Tokenizer:
    """Write a sentencepiece unigram model in the words of Hugging Face's library.

    Raises:
        ValueError: It is of another kind than unigram.
    """
    from sentencepiece import SentencePieceProcessor
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    whole = dict(_fields(content))
    trainer, normal = (dict(_fields(whole.get(field, b""))) for field in (_TRAINER, _NORMALIZER))
    if trainer.get(_KIND, _UNIGRAM) != _UNIGRAM:
        raise ValueError("the tokenizer is no unigram model: export without it, and keep it beside")
    model = SentencePieceProcessor(model_proto=content)
    # Sentencepiece never finds control pieces in a text, and Hugging Face's library would. It finds none with
    # a space, because spaces become "▁".
    pieces = [
        (model.id_to_piece(i) + " " * (model.is_control(i) or model.is_unknown(i)), model.get_score(i))
        for i in range(model.get_piece_size())
    ]
    found = Tokenizer(models.Unigram(pieces, model.unk_id(), bool(trainer.get(_BYTES, 0))))
    steps: list[Any] = []
    if charsmap := normal.get(_CHARSMAP):
        steps.append(normalizers.Precompiled(charsmap))
    if normal.get(_NO_EXTRA_SPACES, 1):
        # Only spaces, since sentencepiece keeps other white space that the map above has left.
        steps += [normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    found.normalizer = normalizers.Sequence(steps)
    scheme = "always" if normal.get(_DUMMY_PREFIX, 1) else "never"
    found.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
    found.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    return found


# Numbers of fields of sentencepiece_model.proto: of the model, of its trainer, and of its normaliser.
_TRAINER, _NORMALIZER = 2, 3
_KIND, _BYTES, _UNIGRAM = 3, 35, 1
_CHARSMAP, _DUMMY_PREFIX, _NO_EXTRA_SPACES = 2, 3, 4


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protocol buffer's message: number and value, an integer or bytes.

    Sentencepiece's own classes for it ask for another version of protobuf than XManager allows.
    """
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = content[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(content):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield number, content[place : place + size]
        place += size
