"""Turn captions into tokens: a sentencepiece model trained on the shards' own captions."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import derived_path, write_whole
from jestlab.models.data.shards import ShardSource

PAD, EOS, UNKNOWN = 0, 1, 2
# The first captions; more would hardly change a unigram model with a small vocabulary.
_TRAINING_CAPTIONS = 200_000
_VERSION = 1  # of the training recipe below


class Tokenizer:
    """A sentencepiece unigram model, used as SigLIP uses its own.

    Attributes:
        model: The serialised sentencepiece model.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model

    def __getstate__(self) -> bytes:
        return self.model

    def __setstate__(self, model: bytes) -> None:
        self.model = model

    @cached_property
    def _processor(self) -> Any:
        from sentencepiece import SentencePieceProcessor

        return SentencePieceProcessor(model_proto=self.model)

    @property
    def vocabulary_size(self) -> int:
        """The number of pieces; less than was asked for if the captions hold few distinct words."""
        return int(self._processor.get_piece_size())

    @property
    def digest(self) -> str:
        """The SHA-256 of the model, as hex."""
        return hashlib.sha256(self.model).hexdigest()

    def __call__(self, captions: Sequence[str], length: int) -> npt.NDArray[np.int32]:
        """Tokenise n captions, in lower case, as int32[n, length].

        Long captions are cut to make room for the end token, short ones are padded with it.
        """
        tokens = np.full((len(captions), length), EOS, np.int32)
        # One call, one thread: otherwise sentencepiece starts a thread per core for each batch.
        pieces = self._processor.encode(
            [caption.lower() for caption in captions], out_type=int, num_threads=1
        )
        for row, ids in zip(tokens, pieces, strict=True):
            ids = ids[: length - 1]
            row[: len(ids)] = ids
        return tokens


def ensure_tokenizer(folder: Path, vocabulary_size: int) -> Tokenizer:
    """Return the tokenizer of a folder of shards, kept beside them; train it on first use, on the first
    200,000 captions at most, unfiltered.

    The same shards give the same model, bit for bit, so processes that train it at once agree.

    Args:
        folder: A folder of shards.
        vocabulary_size: Largest number of pieces.

    Raises:
        ValueError: The captions hold more distinct characters than that.
    """
    source = ShardSource(folder)
    path = derived_path(
        folder, f"tokenizer-{vocabulary_size}-v{_VERSION}-{source.index.signature[:16]}.model"
    )
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
    # NOTE: footgun: the trainer's candidates are the substrings that different characters follow. A word that
    # is always followed by a space, or always by the caption's end, would stay split; here each meets both.
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
