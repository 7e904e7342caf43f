"""The config of one run that takes in public weights, so that they serve like a trained reference."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from .section import LocalPath, Section, Seed
from .towers import TwoTowers


class WeightsConfig(Section):
    """One import of weights: big_vision's `.npz`, Hugging Face's SigLIP, or what `weights import` wrote.

    `digest`, `tokenizer_digest` and `model` are filled in when planned, from what lies at the paths; given
    beforehand, they say what must lie there.
    """

    version: ClassVar[int] = 1

    path: LocalPath
    tokenizer: LocalPath | None = None  # sentencepiece model; None: the one that lies beside the weights
    digest: str | None = None  # of the parameters' content, in whatever format they lie
    tokenizer_digest: str | None = None
    model: TwoTowers | None = None  # architecture
    compute_dtype: Literal["float32", "bfloat16"] = "float32"  # of the towers, wherever these weights score
    seed: Seed = 0  # nothing here is random: all replicates are one run

    def identity(self) -> dict[str, Any]:
        """What decides the result: the content of the weights and of the tokenizer, never where they lie."""
        identity = self.model_dump(mode="json", exclude_defaults=True, exclude={"model", "seed"})
        for path, digest in (("path", "digest"), ("tokenizer", "tokenizer_digest")):
            if identity.get(digest):
                identity.pop(path, None)
        return identity
