"""Programs and values in the cache: found again, distinguished by everything they depend on, and exact."""

import contextlib
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jestlab.models import kept as module
from jestlab.models.config import Extension
from jestlab.models.kept import kept, kept_values


class State(NamedTuple):
    """A tree that `jax.export` does not know by itself."""

    x: jax.Array
    rest: dict[str, jax.Array]
    nothing: None = None


class Traced:
    """A function that counts how often it is traced."""

    def __init__(self):
        self.times = 0

    def jitted(self):
        """A new function: JAX remembers in the process what it has traced."""

        def function(state, y):
            self.times += 1
            return State(jnp.sin(state.x) + y, {"sum": state.rest["sum"] + y.sum()}), {"y": y * 2}

        return jax.jit(function)


@pytest.fixture
def folder(tmp_path):
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path / "programs"
    jax.config.update("jax_compilation_cache_dir", before)


def arguments(rows=3):
    return State(jnp.arange(float(rows)), {"sum": jnp.float32(1)}), jnp.ones(rows)


def files(folder):
    return sorted(file.name for file in folder.glob("*")) if folder.exists() else []


def test_a_kept_program_is_not_traced_again_and_gives_the_same(folder):
    function = Traced()
    expected = function.jitted()(*arguments())
    first = kept(function.jitted(), "f", ())(*arguments())
    assert function.times == 2
    again = kept(function.jitted(), "f", ())
    for _ in range(2):
        second = again(*arguments())
    assert function.times == 2
    assert len({str(jax.tree.structure(found)) for found in (first, second, expected)}) == 1
    for one, two, want in zip(*map(jax.tree.leaves, (first, second, expected)), strict=True):
        assert np.array_equal(one, two)
        np.testing.assert_allclose(one, want, rtol=1e-6)
    assert [name.endswith(".stablehlo") for name in files(folder)] == [True]


def test_a_donated_argument_is_gone(folder):
    given = arguments()
    kept(jax.jit(lambda state, y: (State(state.x + y, state.rest), y)), "f", (), donate=(0,))(*given)
    assert given[0].x.is_deleted()
    assert not given[1].is_deleted()


@contextlib.contextmanager
def precision():
    before = jax.config.values["jax_default_matmul_precision"]
    jax.config.update("jax_default_matmul_precision", "highest")
    yield
    jax.config.update("jax_default_matmul_precision", before)


def test_everything_that_a_program_depends_on_makes_it_another(folder):
    function = Traced()
    state, y = arguments()
    kept(function.jitted(), {"width": 32}, ())(state, y)
    kept(function.jitted(), {"width": 48}, ())(state, y)
    kept(function.jitted(), {"width": 32}, ())(*arguments(4))
    kept(function.jitted(), {"width": 32}, ())(state, y.astype(jnp.bfloat16))
    assert function.times == len(files(folder)) == 4
    source = mock.patch.object(module, "_source", lambda: "another")
    library = mock.patch("optax.__version__", "of tomorrow")
    changes: tuple[contextlib.AbstractContextManager[Any], ...] = (source, library, precision())
    for number, change in enumerate(changes, start=5):
        with change:
            kept(function.jitted(), {"width": 32}, ())(state, y)
        assert function.times == len(files(folder)) == number


def values_of(seed, times, rows=3, said="f", own=(), impl=None):
    def function(key):
        times.append(seed)
        return {"a": {"b": jax.random.normal(key, (rows,))}, "c": jnp.ones((2, 2), jnp.bfloat16)}

    return kept_values(function, said, own, jax.random.key(seed, impl=impl))


def test_kept_values_are_exact_and_those_of_their_key(folder):
    times: list[int] = []
    first, again, other = (values_of(seed, times) for seed in (1, 1, 2))
    assert times == [1, 2]
    assert str(jax.tree.structure(first)) == str(jax.tree.structure(again))
    for one, two in zip(*map(jax.tree.leaves, (first, again)), strict=True):
        assert isinstance(two, jax.Array) and one.dtype == two.dtype and np.array_equal(one, two)
    assert not np.array_equal(first["a"]["b"], other["a"]["b"])
    values_of(1, times, said="g")
    values_of(1, times, impl="rbg")
    assert len(times) == 4
    assert len(files(folder.parent / "values")) == 4


def test_values_that_would_round_differently_are_others(folder, monkeypatch):
    """Machines of several kinds may read an experiment's folder."""
    times: list[int] = []
    values_of(1, times)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=SSE4_2")
    values_of(1, times)
    monkeypatch.setattr("numpy.show_config", lambda mode: {"SIMD Extensions": {"found": ["NEON"]}})
    values_of(1, times)
    assert len(times) == len(files(folder.parent / "values")) == 3


@pytest.mark.parametrize("why", ["large", "custom code", "traced", "damaged"])
def test_values_that_are_not_kept_are_computed_again(folder, monkeypatch, why):
    times: list[int] = []
    own = [Extension(("model",), "tower", "module:tower", {})] if why == "custom code" else ()
    if why == "large":
        monkeypatch.setattr(module, "_LARGEST_VALUES", 19)  # 12 and 8 bytes
    if why == "traced":
        assert jax.eval_shape(lambda: values_of(1, times))["a"]["b"].shape == (3,)
    else:
        values_of(1, times, own=own)
    if why == "damaged":
        [file] = (folder.parent / "values").iterdir()
        file.write_bytes(file.read_bytes()[:-1])
    values_of(1, times, own=own)
    assert len(times) == 2


def test_a_damaged_program_is_traced_again_with_a_warning(folder, caplog):
    function = Traced()
    expected = kept(function.jitted(), "f", ())(*arguments())
    [file] = folder.glob("*")
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for times, damaged in enumerate((b"", b"not a program", whole[:-1], flipped), start=2):
        file.write_bytes(damaged)
        for _ in range(2):
            again = kept(function.jitted(), "f", ())(*arguments())
            assert np.array_equal(again[0].x, expected[0].x)
            assert function.times == times
        assert caplog.text.count(str(file)) == times - 1


def test_a_program_that_cannot_be_written_still_computes(folder, caplog, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_whole", full)
    function = Traced()
    found = kept(function.jitted(), "f", ())(*arguments())
    assert np.array_equal(found[1]["y"], [2, 2, 2])
    assert "No space left on device" in caplog.text
    assert not files(folder)


def test_programs_of_several_devices_of_custom_code_or_without_a_cache_are_not_kept(folder):
    function = Traced().jitted()
    assert kept(function, "f", [Extension(("loss",), "loss", "module:loss", {})]) is function
    assert kept(function, "f", (), devices=2) is function
    jax.config.update("jax_compilation_cache_dir", None)
    assert kept(function, "f", ()) is function
