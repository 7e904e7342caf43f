"""Keep what tracing a function finds, or what it returns, so that the next process need not find it again.

Tracing and lowering the step of a small run takes a second, as long as a hundred steps do. What comes out, a
StableHLO program, is kept as a file beside JAX's compilation cache, which keeps what XLA makes of it. Every
process, the first one too, compiles the program as it was read back, so that all compute the same.

The initial parameters of a small model are kept themselves: all runs of a seed begin with the same ones, and
a program that draws some dozens of arrays takes longer to load than two hundred steps do.

Both are kept where JAX has a compilation cache, on one CPU device. A file's name is a digest of all that its
content may depend on: what the caller says, shapes and dtypes, this package's source, the versions of the
libraries that trace, JAX's settings; for values also XLA's flags and the processor's instruction sets, by
which they round. With code of one's own no such list is complete, so nothing is kept; methods that come with
this package are part of its source.

`jax.export` promises to read programs of older versions of JAX; the name holds the version all the same.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import flax
import jax
import jaxlib
import numpy as np
import optax
from flax import serialization
from jax import export

from jestlab.models.config import Extension
from jestlab.models.data.files import write_whole
from jestlab.models.extensions import is_of_jestlab, reference_of

_LOG = logging.getLogger(__name__)

_LIBRARIES = (jax, jaxlib, flax, optax, np)
_PROGRAMS, _VALUES = "programs", "values"  # folders
_LARGEST_VALUES = 2**24  # bytes of values that are kept
_DIGEST_BYTES = hashlib.sha256().digest_size


def kept(
    function: Any, said: Any, own: Iterable[Extension], *, devices: int = 1, donate: tuple[int, ...] = ()
) -> Any:
    """Return a jitted function whose program is kept, if programs are kept here, else the function itself.

    Args:
        function: A jitted function of trees of arrays; it will be called with the same shapes every time.
        said: Plain data that the function depends on besides its arguments and this package.
        own: Code of one's own that the config names.
        devices: How many devices it computes on.
        donate: Positions of the arguments whose memory the result may take.
    """
    cache = _cache(own, devices)
    return function if cache is None else _Kept(function, said, donate, cache / _PROGRAMS)


def kept_values(
    function: Callable[[jax.Array], dict[str, Any]], said: Any, own: Iterable[Extension], key: jax.Array
) -> dict[str, Any]:
    """Return a function's value, from where it is kept if it was asked for before; small ones are kept.

    Args:
        function: A function of a PRNG key that returns nested dictionaries of arrays.
        said: Plain data that it depends on besides its argument and this package.
        own: Code of one's own that the config names.
        key: The argument.
    """
    cache = None if isinstance(key, jax.core.Tracer) else _cache(own, 1)
    if cache is None:
        return function(key)
    rounding = (os.environ.get("XLA_FLAGS", ""), np.show_config("dicts")["SIMD Extensions"])
    digest = _digest(said, str(key.dtype), jax.random.key_data(key).tolist(), rounding)
    file = cache / _VALUES / f"{digest}.msgpack"
    if (content := _read(file)) is not None:
        found: dict[str, Any] = jax.device_put(serialization.msgpack_restore(bytes(content)))
        return found
    values = function(key)
    if sum(leaf.nbytes for leaf in jax.tree.leaves(values)) <= _LARGEST_VALUES:
        _write(file, serialization.msgpack_serialize(jax.tree.map(np.asarray, values)))
    return values


def _cache(own: Iterable[Extension], devices: int) -> Path | None:
    """Return the folder of JAX's cache; None if nothing is kept of what is computed on so many devices."""
    folder = jax.config.values["jax_compilation_cache_dir"]
    alone = devices == 1 and jax.process_count() == 1 and jax.default_backend() == "cpu"
    is_ours = all(is_of_jestlab(reference_of(each.kind, each.name)) for each in own)
    return Path(folder) if folder and alone and is_ours else None


class _Kept:
    """A function that finds its program at its first call."""

    def __init__(self, function: Any, said: Any, donate: tuple[int, ...], folder: Path) -> None:
        self._function, self._donate, self._folder = function, donate, folder
        self._said = json.dumps(said, sort_keys=True)
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._compiled is None:
            self._compiled = jax.jit(self._program(arguments).call, donate_argnums=self._donate)
        return self._compiled(*arguments)

    def _program(self, arguments: tuple[Any, ...]) -> export.Exported:
        """Return the program, as it was kept or is kept now."""
        for kind in _namedtuples(arguments):
            _register(kind)
        file = self._folder / f"{self._name(arguments)}.stablehlo"
        if (program := _read(file)) is not None:
            return export.deserialize(program)
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arguments)
        program = export.export(self._function)(*shapes).serialize()
        _write(file, program)
        return export.deserialize(program)

    def _name(self, arguments: tuple[Any, ...]) -> str:
        """Return the digest that the program for arguments of these shapes has as its name."""
        leaves, tree = jax.tree.flatten(arguments)
        return _digest(self._said, str(tree), [f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves])


def _digest(*content: Any) -> str:
    """Return the digest of plain data, and of all else that what is kept may depend on."""
    everything = (
        *(*content, _source(), sys.version),
        {library.__name__: library.__version__ for library in _LIBRARIES},
        {name: str(value) for name, value in sorted(jax.config.values.items()) if "cache" not in name},
    )
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


def _write(file: Path, content: bytes | bytearray) -> None:
    """Write a file's content after its digest."""
    try:
        write_whole(file, hashlib.sha256(content).digest() + content)
    except OSError as error:  # the disk is full: the run can do without
        _LOG.warning("%s cannot be kept: %s", file, error)


def _read(file: Path) -> bytearray | None:
    """Read a file's content, which follows its digest; None if there is no file, or a damaged one."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    digest, rest = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(rest).digest() != digest:
        _LOG.warning("%s is damaged, and made anew", file)
        return None
    return bytearray(rest)


@functools.cache
def _source() -> str:
    """Digest of this package's source."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(f"{file}\n".encode() + file.read_bytes())
    return digest.hexdigest()


@functools.cache
def _register(kind: type) -> None:
    """Tell `jax.export` how a kind of named tuple is called; it knows none of Optax's."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    with contextlib.suppress(ValueError):  # its own library has told
        export.register_namedtuple_serialization(kind, serialized_name=name)


def _namedtuples(tree: Any) -> Iterator[type]:
    """Yield the kinds of named tuples in a tree."""
    if isinstance(tree, tuple | list):
        if hasattr(tree, "_fields"):
            yield type(tree)
        for child in tree:
            yield from _namedtuples(child)
    elif isinstance(tree, dict):
        for child in tree.values():
            yield from _namedtuples(child)
