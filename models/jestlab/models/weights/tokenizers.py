"""The tokenizer that belongs to weights: found beside them, and held against them."""

from __future__ import annotations

from pathlib import Path

from ..config import TwoTowers
from ..data.tokenizer import EOS

NAMES = ("spiece.model", "tokenizer.model", "sentencepiece.model")
"""What sentencepiece models are called beside weights: by Hugging Face, by jestlab, by T5's vocabularies."""


def beside(folder: Path) -> Path | None:
    """The tokenizer in a folder, if there is one."""
    return next((folder / name for name in NAMES if (folder / name).is_file()), None)


def read(path: Path, model: TwoTowers) -> bytes:
    """A tokenizer that fits towers and reads captions as SigLIP does.

    Args:
        path: A sentencepiece model.
        model: The towers.

    Returns:
        The serialised sentencepiece model.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is none, has more pieces than the text tower has embeddings, or other special pieces
            than SigLIP's (SigLIP 2's begins and pads captions in another way).
    """
    from sentencepiece import SentencePieceProcessor

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such tokenizer (a sentencepiece .model)")
    content = path.read_bytes()
    try:
        processor = SentencePieceProcessor(model_proto=content)
    except RuntimeError as error:
        raise ValueError(f"{path}: is no sentencepiece model") from error
    pieces, embeddings = processor.get_piece_size(), model.text.vocabulary_size
    if pieces > embeddings:
        raise ValueError(f"{path}: has {pieces} pieces, but the text tower has {embeddings} embeddings")
    if processor.eos_id() != EOS or processor.bos_id() != -1:
        raise ValueError(
            f"{path}: is no tokenizer of SigLIP's: its end piece is {processor.eos_id()}, should be {EOS}; "
            f"its begin piece is {processor.bos_id()}, should be none (-1)"
        )
    return content
