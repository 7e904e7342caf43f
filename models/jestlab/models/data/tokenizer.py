"""Turn captions into tokens: by a sentencepiece model of the shards' own captions, or by a public one.

SigLIP reads captions by a sentencepiece model, cut to make room for the end token and padded with it. SigLIP
2 reads them by Gemma's, which comes as a sentencepiece model or as the `tokenizer.json` of Hugging Face's
library, ends them alike, and pads with a token of its own. Both write them in lower case.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import derived_path, write_whole
from jestlab.models.data.shards import ShardSource

PAD, EOS, UNKNOWN = 0, 1, 2
# The first captions; more would hardly change a unigram model with a small vocabulary.
_TRAINING_CAPTIONS = 200_000
_VERSION = 1  # of the training recipe below


class _Sentencepiece:
    """A sentencepiece model.

    Attributes:
        size: The number of pieces.
        end: The number of the piece that ends a text.
        begin: The number of the piece that begins one; −1 if there is none. It is never used.
        pad: The number that short texts are padded with.
    """

    def __init__(self, model: bytes) -> None:
        from sentencepiece import SentencePieceProcessor

        self._processor = SentencePieceProcessor(model_proto=model)
        self.size = int(self._processor.get_piece_size())
        self.end, self.begin = int(self._processor.eos_id()), int(self._processor.bos_id())
        self.pad = self.end if self.begin == -1 else int(self._processor.pad_id())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Cut texts into the numbers of their pieces, without the piece that ends them."""
        # One call, one thread: otherwise sentencepiece starts a thread per core for each batch.
        pieces: list[list[int]] = self._processor.encode(list(texts), out_type=int, num_threads=1)
        return pieces


class _Json:
    """A `tokenizer.json` of Hugging Face's library with Gemma's special pieces; see `_Sentencepiece`."""

    def __init__(self, model: bytes) -> None:
        import tokenizers

        self._tokenizer = tokenizers.Tokenizer.from_buffer(model)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True  # in captions they are texts
        self.size = int(self._tokenizer.get_vocab_size())
        named = {name: self._tokenizer.token_to_id(f"<{name}>") for name in ("eos", "bos", "pad")}
        self.end, self.begin, self.pad = (-1 if found is None else int(found) for found in named.values())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        # One by one: a batch would start threads.
        return [self._tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


class Tokenizer:
    """A tokenizer, used as SigLIP and SigLIP 2 use theirs.

    Attributes:
        model: As it is in a file: a sentencepiece model, or a `tokenizer.json`.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model

    def __getstate__(self) -> bytes:
        return self.model

    def __setstate__(self, model: bytes) -> None:
        self.model = model

    @property
    def is_json(self) -> bool:
        """Whether it is a `tokenizer.json`."""
        return self.model[:1] == b"{"

    @cached_property
    def pieces(self) -> _Sentencepiece | _Json:
        """What cuts texts into pieces.

        Raises:
            ValueError: The model is neither of both.
        """
        try:
            return _Json(self.model) if self.is_json else _Sentencepiece(self.model)
        except Exception as error:  # of either library, which have no base class of theirs
            what = "tokenizer.json of Hugging Face's library" if self.is_json else "sentencepiece model"
            raise ValueError(f"not a {what}") from error

    @property
    def vocabulary_size(self) -> int:
        """The number of pieces; less than was asked for if the captions hold few distinct words."""
        return self.pieces.size

    @property
    def digest(self) -> str:
        """The SHA-256 of the model, as hex."""
        return hashlib.sha256(self.model).hexdigest()

    def __call__(self, captions: Sequence[str], length: int) -> npt.NDArray[np.int32]:
        """Tokenise n captions, in lower case, as int32[n, length].

        Long captions are cut to make room for the end token, short ones are padded.
        """
        tokens = np.full((len(captions), length), self.pieces.pad, np.int32)
        cut = self.pieces.encode([caption.lower() for caption in captions])
        for row, ids in zip(tokens, cut, strict=True):
            ids = [*ids[: length - 1], self.pieces.end]
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
