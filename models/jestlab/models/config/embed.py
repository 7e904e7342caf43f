"""The config of one embedding run: a reference's view of a whole training set."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt

from .data import Data
from .section import Fraction, RunName, Section, Seed


class EmbedRuntime(Section):
    """How, not what: never part of a run's identity."""

    batch_size: PositiveInt = 256  # examples a forward pass
    save_every_batches: PositiveInt = 16  # made durable, so that an interrupted run goes on from there
    loader_threads: PositiveInt = 1
    decoded_megabytes: NonNegativeInt = 256  # of images decoded once for all runs; larger sets: each time
    damaged_share: Fraction = 0.01  # of the examples that may be damaged before the run fails


class EmbedConfig(Section):
    """One embedding run: the reference's image and text embeddings of every example that `data` holds.

    Stored by the example's global number, so that any run on the same data can select with them, in whatever
    order it reads (paper, appendix, "Caching reference model scores").
    """

    version: ClassVar[int] = 1

    reference: RunName
    data: Data = Data()
    precision: Literal["float32", "float16"] = "float32"  # as stored; float16 halves it, and scores shift
    runtime: EmbedRuntime = EmbedRuntime()
    seed: Seed = 0

    @property
    def web_seed(self) -> int:
        """The seed of the synthetic web: its own, or the run's."""
        return self.data.web_seed(self.seed)

    def identity(self) -> dict[str, Any]:
        """What decides the result: the training data and the precision. The benchmark and the seed, but for
        the web made from it, have no part in it."""
        identity = self.model_dump(mode="json", exclude_defaults=True, exclude={"runtime", "seed"})
        data = self.data.identity(self.web_seed)
        data.pop("benchmark", None)
        return identity | {"data": data}
