"""The program `weights`: take in public weights, so that they serve as the reference like a trained run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jestlab.analysis.costs import Cost
from jestlab.models.config import TwoTowers, WeightsConfig
from jestlab.platform.errors import UserError
from jestlab.platform.programs.contents import Contents
from jestlab.platform.programs.program import Config, Price, Program

if TYPE_CHECKING:
    from jestlab.models.weights import Weights
    from jestlab.platform.context import RunContext


def price(config: WeightsConfig, needs: Mapping[str, Config]) -> Price:
    """Nothing: somebody else trained them, and what that took is not known here."""
    return Price(Cost(), examples=0)


def complete(config: WeightsConfig, contents: Contents) -> WeightsConfig:
    """A config that carries the towers and the digests of what lies at its paths, if that is not passed over.

    Raises:
        UserError: There is no tokenizer, or something else lies there than the config says.
        ValueError: There are no such weights; what is wrong with them is said.
    """
    if config.model and config.digest and config.tokenizer_digest:
        return config.model_copy(update={"model": _computing(config.model, config)})
    places = {"checkpoint": config.path, "tokenizer": config.tokenizer}
    if [what for what, path in places.items() if path and contents.passes_over(Path(path), what)]:
        return config
    found = _weights(config)
    _check("path", config.path, config.digest, content := found.digest())
    _, tokenizer = _tokenizer(config, found)
    model = _computing(found.model, config)
    return config.model_copy(update={"digest": content, "tokenizer_digest": tokenizer, "model": model})


def _computing(model: TwoTowers, config: WeightsConfig) -> TwoTowers:
    """Towers that compute as the config says."""
    return model.model_copy(update={"compute_dtype": config.compute_dtype})


def run(config: WeightsConfig, context: RunContext) -> None:
    """Write `checkpoints/` and `tokenizer.model` into the run's folder, as a trained run has them.

    Args:
        config: The run.
        context: Where to work and report.

    Raises:
        UserError: Other weights lie there than when the run was planned.
    """
    from jestlab.models.data.files import write_whole
    from jestlab.models.training.checkpoints import save_parameters
    from jestlab.models.weights import content_hash, unflatten

    context.progress(0, 1)
    found = _weights(config)
    content, _ = _tokenizer(config, found)
    tensors = found.tensors()
    _check("path", config.path, config.digest, content_hash(tensors.items(), found.model))
    write_whole(context.directory / "tokenizer.model", content)
    save_parameters(context.directory / "checkpoints", unflatten(tensors))
    context.artifact("checkpoints", context.directory / "checkpoints")
    context.progress(1, 1)


def _weights(config: WeightsConfig) -> Weights:
    from jestlab.models.weights import open_weights

    return open_weights(Path(config.path), config.model)


def _tokenizer(config: WeightsConfig, found: Weights) -> tuple[bytes, str]:
    """The serialised tokenizer and its digest."""
    from hashlib import sha256

    from jestlab.models.weights import read_tokenizer

    path = Path(config.tokenizer) if config.tokenizer is not None else found.tokenizer
    if path is None:
        raise UserError(
            f"tokenizer: no spiece.model or tokenizer.model beside {config.path}: "
            "put it there, or give its path as `tokenizer`"
        )
    content = read_tokenizer(path, found.model)
    digest = sha256(content).hexdigest()
    _check("tokenizer", str(path), config.tokenizer_digest, digest)
    return content, digest


def _check(field: str, path: str, recorded: str | None, found: str) -> None:
    if recorded is not None and recorded != found:
        raise UserError(
            f"{field}: {path} holds something else (digest {found[:12]}, recorded {recorded[:12]}): "
            "restore it, or drop the digest to use what it holds now"
        )


WEIGHTS = Program(
    name="weights",
    entry_point="jestlab.platform.programs.weights:run",
    version=WeightsConfig.version,
    schema=WeightsConfig,
    identity_of=WeightsConfig.identity,
    price_of=price,
    complete=complete,
    collective=False,
)
