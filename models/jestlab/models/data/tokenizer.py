"""Convert captions to tokens, with a tokenizer that is trained on a folder's captions or a public one.

SigLIP uses a sentencepiece model: captions are cut to leave room for the end token, and padded with it.
SigLIP 2 uses Gemma's, a sentencepiece model or a `tokenizer.json` of Hugging Face's library, with the same
end token and a separate padding token. Both convert captions to lower case.
"""

import hashlib
import io
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import derived_path, write_whole
from jestlab.models.data.shards import ShardIndex

PAD, EOS, UNKNOWN = 0, 1, 2
_TRAINING_CAPTIONS = 200_000  # more would hardly change a unigram model with a small vocabulary
_VERSION = 1  # increase it if `train_tokenizer` gives another model


class Pieces(NamedTuple):
    """The pieces of a tokenizer.

    Attributes:
        encode: Divides each text into pieces; returns their numbers, without the end of the text.
        size: Number of pieces.
        end: Number of the piece that ends texts.
        begin: Number of the piece that begins texts, which isn't used; −1 if the tokenizer doesn't have one.
        pad: Number of the piece that pads texts.
    """

    encode: Callable[[list[str]], list[list[int]]]
    size: int
    end: int
    begin: int
    pad: int


def _sentencepiece(model: bytes) -> Pieces:
    """Load a sentencepiece model."""
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_proto=model)
    end, begin = processor.eos_id(), processor.bos_id()

    def encode(texts: list[str]) -> list[list[int]]:
        # By default, sentencepiece starts a thread per core for each batch.
        pieces: list[list[int]] = processor.encode(texts, out_type=int, num_threads=1)
        return pieces

    return Pieces(encode, processor.get_piece_size(), end, begin, end if begin == -1 else processor.pad_id())


def _huggingface(model: bytes) -> Pieces:
    """Load a `tokenizer.json` with Gemma's special pieces."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_buffer(model)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # special tokens in captions are plain text

    def encode(texts: list[str]) -> list[list[int]]:
        # `encode_batch` would start threads.
        return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]

    special = (tokenizer.token_to_id(f"<{name}>") for name in ("eos", "bos", "pad"))
    return Pieces(encode, tokenizer.get_vocab_size(), *(-1 if id is None else id for id in special))


class Tokenizer:
    """A tokenizer for captions of SigLIP or SigLIP 2.

    Args:
        model: Content of its file: a sentencepiece model, or a `tokenizer.json`.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model

    @property
    def is_json(self) -> bool:
        """Whether the model is a `tokenizer.json`."""
        return self.model[:1] == b"{"

    @cached_property
    def pieces(self) -> Pieces:
        """The pieces of the tokenizer; raises ValueError if the model is invalid."""
        try:
            return _huggingface(self.model) if self.is_json else _sentencepiece(self.model)
        except Exception as error:  # the errors of these libraries have no common base class
            format = "tokenizer.json of Hugging Face's library" if self.is_json else "sentencepiece model"
            raise ValueError(f"not a {format}") from error

    @property
    def digest(self) -> str:
        """The SHA-256 of the model, as hex."""
        return hashlib.sha256(self.model).hexdigest()

    def __call__(self, captions: Sequence[str], length: int) -> npt.NDArray[np.int32]:
        """Convert n captions to tokens, int32[n, length], cut or padded to this length."""
        tokens = np.full((len(captions), length), self.pieces.pad, np.int32)
        encoded = self.pieces.encode([caption.lower() for caption in captions])
        for row, ids in zip(tokens, encoded, strict=True):
            ids = [*ids[: length - 1], self.pieces.end]
            row[: len(ids)] = ids
        return tokens


def ensure_tokenizer(folder: Path, vocabulary_size: int) -> Tokenizer:
    """Return the tokenizer of a folder of shards, which is stored next to them.

    On first use, it is trained on the first 200,000 captions, unfiltered. The same shards give the same
    model, bit for bit, so processes that train it at the same time agree.

    Args:
        folder: A folder of shards.
        vocabulary_size: Largest number of pieces.

    Raises:
        ValueError: The captions contain more distinct characters than that.
    """
    source = ShardIndex.load(folder)
    name = f"tokenizer-{vocabulary_size}-v{_VERSION}-{source.signature[:16]}.model"
    path = derived_path(folder, name)
    if path.exists():
        return Tokenizer(path.read_bytes())
    captions = source.captions(np.arange(min(len(source), _TRAINING_CAPTIONS)))
    try:
        tokenizer = train_tokenizer(captions, vocabulary_size)
    except ValueError as error:
        raise ValueError(f"model.text.vocabulary_size: {error} (captions of {folder})") from None
    write_whole(path, tokenizer.model)
    return tokenizer


def train_tokenizer(captions: Sequence[str], vocabulary_size: int) -> Tokenizer:
    """Train a unigram model on captions, deterministically; see `ensure_tokenizer`."""
    from sentencepiece import SentencePieceTrainer

    sentences = [" ".join(caption.lower().split()) for caption in captions]
    # NOTE: The trainer only considers substrings that different characters follow. A word that is always
    # followed by a space, or always ends a caption, would stay divided. Here, each word does both.
    sentences += [f"{word} {word}" for word in sorted({word for line in sentences for word in line.split()})]
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            pad_id=PAD,
            eos_id=EOS,
            unk_id=UNKNOWN,
            bos_id=-1,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = " ".join(str(error).split()).rpartition("] ")[2]
        raise ValueError(
            f"no tokenizer of {vocabulary_size} pieces for these {len(captions)} captions: {reason}"
        ) from error
    return Tokenizer(model.getvalue())
