"""Images in tars, decoded batch by batch when they are asked for: a test set need not fit in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jestlab.models.data.images import Pixels, decode

Ints = npt.NDArray[np.int64]

_AHEAD = 2  # batches that are decoded while one is being used
_TASK = 16  # images that a thread decodes at a time


class LazyImages:
    """n images of which only the places are held; see `batches`.

    Attributes:
        size: Side in pixels of the decoded images.
    """

    def __init__(
        self, tars: tuple[Path, ...], shard: Ints, keys: npt.NDArray[np.bytes_], spans: Ints, size: int
    ) -> None:
        """Say where images lie.

        Args:
            tars: The tars.
            shard: int64[n], which of them holds each image.
            keys: bytes[n], names of the examples, for messages.
            spans: int64[n, 2], offset and size of each image file in its tar.
            size: Side to which images are resized, in pixels.
        """
        self.size = size
        self._tars, self._shard, self._keys, self._spans = tars, shard, keys, spans
        self._keep = False
        self._kept: Pixels | None = None

    def __len__(self) -> int:
        return len(self._shard)

    @property
    def decoded_bytes(self) -> int:
        """Size of all images decoded."""
        return len(self) * self.size * self.size * 3

    def describe(self, image: int) -> str:
        """Shard and example of an image, for messages."""
        return f"{self._tars[self._shard[image]]}, example {self._keys[image].decode()!r}"

    def take(self, indices: npt.NDArray[np.integer[Any]]) -> LazyImages:
        """Some of the images, in the order of `indices`, int[k]."""
        return LazyImages(
            self._tars, self._shard[indices], self._keys[indices], self._spans[indices], self.size
        )

    def keep(self) -> None:
        """From now on, decode once: the pixels of the first full pass are kept and serve all later ones."""
        self._keep = True

    def batches(self, batch_size: int, threads: int = 2) -> Iterator[Pixels]:
        """All images in order.

        Decoding runs ahead of the caller, in threads, by two batches and no more.

        Args:
            batch_size: Images a batch; the last one may hold fewer.
            threads: How many decode.

        Yields:
            uint8[k, size, size, 3].

        Raises:
            ValueError: A damaged image, or a tar that has become shorter than it was when indexed.
        """
        if self._kept is not None:
            for start in range(0, len(self), batch_size):
                yield self._kept[start : start + batch_size]
            return
        whole = np.empty((len(self), self.size, self.size, 3), np.uint8) if self._keep else None
        done = 0
        for batch in self._decoded(batch_size, threads):
            if whole is not None:
                whole[done : done + len(batch)] = batch
            done += len(batch)
            yield batch
        self._kept = whole

    def _decoded(self, batch_size: int, threads: int) -> Iterator[Pixels]:
        """As `batches`, from the tars."""
        pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        ahead: deque[list[Future[Pixels]]] = deque()
        try:
            for start in range(0, len(self), batch_size):
                stop = min(start + batch_size, len(self))
                tasks = range(start, stop, _TASK)
                ahead.append([pool.submit(self._decode, at, min(at + _TASK, stop)) for at in tasks])
                if len(ahead) > _AHEAD:
                    yield np.concatenate([task.result() for task in ahead.popleft()])
            while ahead:
                yield np.concatenate([task.result() for task in ahead.popleft()])
        finally:
            pool.shutdown(cancel_futures=True)

    def _decode(self, start: int, stop: int) -> Pixels:
        """The images from `start` to `stop`."""
        pixels = np.empty((stop - start, self.size, self.size, 3), np.uint8)
        for i in range(start, stop):
            offset, length = self._spans[i].tolist()
            with self._tars[self._shard[i]].open("rb", buffering=0) as file:
                file.seek(offset)
                content = file.read(length)
            if len(content) != length:
                raise ValueError(f"{self.describe(i)}: cut short, {len(content)} of {length} bytes")
            try:
                pixels[i - start] = decode(content, self.size)
            except ValueError as error:
                raise ValueError(f"{self.describe(i)}: {error}") from error
        return pixels


def keep_within(budget: int, sets: Iterable[LazyImages]) -> None:
    """Keep the pixels of the smallest sets, as many of them as fit.

    Args:
        budget: Bytes for all of them together.
        sets: Images that will be read again and again.
    """
    for images in sorted(sets, key=lambda images: images.decoded_bytes):
        budget -= images.decoded_bytes
        if budget < 0:
            return
        images.keep()
