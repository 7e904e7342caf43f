"""Wrap a PyTorch loader of super-batches, and yield sub-batches: the training loop stays as it is.

    for images, texts in SubBatches(loader, learner, reference, generator=generator):
        loss = train_step(images, texts)

Letters: B super-batch, P processes, R = B / P examples in each, b sub-batch, f = 1 − b / B.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .torch import Embeddings, Selected, exchange, select

__all__ = ["SubBatches"]

Embed = Callable[[Any], Embeddings | tuple[Any, ...] | torch.Tensor]


class SubBatches:
    """Iterate over a loader of super-batches, and yield sub-batches.

    `len()` and unknown attributes, such as `num_batches` or `dataset`, are those of the loader.

    Attributes:
        selected: How the last sub-batch was selected; None before the first.
    """

    selected: Selected | None = None

    def __init__(
        self,
        loader: Iterable[Any],
        learner: Embed | None,
        reference: Embed | None,
        *,
        generator: torch.Generator,
        filtering_ratio: float = 0.8,
        device: torch.device | str | None = None,
        group: Any = None,
        **settings: Any,
    ) -> None:
        """Wrap a loader.

        Args:
            loader: Yields super-batches: tensors or lists of R examples, or tuples, lists, or dictionaries of
                these. In several processes, each has its own examples, and tensors alone.
            learner: Function of a super-batch that returns its embeddings (or losses), as `select` takes
                them. It is called without gradients; switching dropout off is up to it. None if the criterion
                doesn't use them.
            reference: The same by the reference.
            generator: The source of the noise. Save its state with a checkpoint to resume exactly.
            filtering_ratio: f. The sub-batch is B (1 − f) of a super-batch, rounded.
            device: Move super-batches there first; None to leave them where they are.
            group: See `select`; each process yields its share of the sub-batch.
            settings: Further arguments of `select`. A sub-batch of fewer than N examples has fewer chunks.

        Raises:
            ValueError: f is not at least 0 and below 1.
        """
        if not 0 <= filtering_ratio < 1:
            raise ValueError(f"filtering_ratio must be at least 0 and below 1, not {filtering_ratio}")
        self.loader, self._learner, self._reference = loader, learner, reference
        self._generator, self._filtering_ratio = generator, filtering_ratio
        self._device, self._group = device, group
        self._settings = {"chunks": 16, **settings}

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield self.sub_batch(batch)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # while it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)

    @torch.no_grad()
    def sub_batch(self, batch: Any) -> Any:
        """Select from one super-batch; return the sub-batch in the same form.

        Raises:
            ValueError: The embeddings are not of as many examples as the batch has; see also `select`.
            TypeError: The batch holds something other than tensors and lists of examples.
        """
        if self._device is not None:
            batch = _each(batch, lambda x: x.to(self._device, non_blocking=True), lambda x: x)
        learner = None if self._learner is None else self._learner(batch)
        reference = None if self._reference is None else self._reference(batch)
        given = learner if learner is not None else reference
        here = len(given[0] if isinstance(given, tuple) else given) if given is not None else 0
        processes = 1 if self._group is None else torch.distributed.get_world_size(self._group)
        size = max(1, round(here * processes * (1 - self._filtering_ratio)))
        settings = self._settings | {"chunks": min(size, self._settings["chunks"])}  # the last may be small
        self.selected = selected = select(
            self._generator, learner, reference, batch_size=size, group=self._group, **settings
        )

        def checked(examples: Any) -> Any:
            if len(examples) != here:
                raise ValueError(f"a super-batch of {len(examples)} examples has embeddings of {here}")
            return examples

        def of_list(examples: Any) -> Any:
            if not isinstance(examples, list | tuple) or self._group is not None:
                raise TypeError(
                    f"cannot take examples of a super-batch from {type(examples).__name__}: expected "
                    "tensors, or (in one process) lists of examples"
                )
            return [checked(examples)[i] for i in selected.indices.tolist()]

        return _each(batch, lambda x: exchange(checked(x), selected.indices, self._group), of_list)


def _each(batch: Any, of_tensor: Callable[[Any], Any], of_others: Callable[[Any], Any]) -> Any:
    """Apply functions to the tensors and to the other columns of a batch, which keeps its form."""
    if isinstance(batch, torch.Tensor):
        return of_tensor(batch)
    if isinstance(batch, dict):
        return {name: _each(x, of_tensor, of_others) for name, x in batch.items()}
    if isinstance(batch, list | tuple) and any(isinstance(x, torch.Tensor | dict | list) for x in batch):
        parts = [_each(x, of_tensor, of_others) for x in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return of_others(batch)
