"""Programs that are kept: found again, told apart by all that they depend on, and the same to the bit."""

from typing import NamedTuple

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


@pytest.mark.parametrize("change", ["said", "shape", "dtype", "source", "library", "setting"])
def test_whatever_a_program_depends_on_makes_it_another(folder, monkeypatch, change):
    function = Traced()
    kept(function.jitted(), {"width": 32}, ())(*arguments())
    said, given = {"width": 32}, arguments()
    if change == "said":
        said = {"width": 48}
    elif change == "shape":
        given = arguments(4)
    elif change == "dtype":
        given = (given[0], given[1].astype(jnp.bfloat16))
    elif change == "source":
        monkeypatch.setattr(module, "_source", lambda: "another")
    elif change == "library":
        monkeypatch.setattr("optax.__version__", "of tomorrow")
    before = jax.config.values["jax_default_matmul_precision"]
    if change == "setting":
        jax.config.update("jax_default_matmul_precision", "highest")
    try:
        kept(function.jitted(), said, ())(*given)
    finally:
        jax.config.update("jax_default_matmul_precision", before)
    assert function.times == 2
    assert len(files(folder)) == 2


def values_of(seed, times, rows=3, said="f", own=(), impl=None):
    def function(key):
        times.append(seed)
        return {"a": {"b": jax.random.normal(key, (rows,))}, "c": jnp.ones((2, 2), jnp.bfloat16)}

    return kept_values(function, said, own, jax.random.key(seed, impl=impl))


def test_kept_values_are_the_same_to_the_bit_and_those_of_their_key(folder):
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


@pytest.mark.parametrize("change", ["flags", "processor"])
def test_values_that_would_round_otherwise_are_others(folder, monkeypatch, change):
    """An experiment's folder may be read by machines of several kinds."""
    times: list[int] = []
    values_of(1, times)
    if change == "flags":
        monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=SSE4_2")
    else:
        monkeypatch.setattr("numpy.show_config", lambda mode: {"SIMD Extensions": {"found": ["NEON"]}})
    values_of(1, times)
    assert times == [1, 1]
    assert len(files(folder.parent / "values")) == 2


@pytest.mark.parametrize("why", ["large", "of one's own", "traced", "damaged"])
def test_values_that_are_not_kept_are_computed_again(folder, monkeypatch, why):
    times: list[int] = []
    own = [Extension(("model",), "tower", "module:tower", {})] if why == "of one's own" else ()
    if why == "large":
        monkeypatch.setattr(module, "_LARGEST_VALUES", 19)  # 12 and 8 bytes
    if why == "traced":
        assert jax.eval_shape(lambda: values_of(1, times))["a"]["b"].shape == (3,)
        assert jax.jit(lambda key: kept_values(lambda k: {"k": k}, "f", (), key))(jax.random.key(1))
    else:
        values_of(1, times, own=own)
    if why == "damaged":
        [file] = (folder.parent / "values").iterdir()
        file.write_bytes(file.read_bytes()[:-1])
    values_of(1, times, own=own)
    assert len(times) == 2


@pytest.mark.parametrize("damage", ["empty", "other", "cut", "flipped"])
def test_a_damaged_program_is_made_anew_and_said(folder, caplog, damage):
    function = Traced()
    expected = kept(function.jitted(), "f", ())(*arguments())
    [file] = folder.glob("*")
    whole = file.read_bytes()
    half = len(whole) // 2
    damaged = {"empty": b"", "other": b"not a program", "cut": whole[:half]}
    damaged["flipped"] = whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :]
    file.write_bytes(damaged[damage])
    again = kept(function.jitted(), "f", ())(*arguments())
    assert function.times == 2
    assert np.array_equal(again[0].x, expected[0].x)
    assert str(file) in caplog.text
    kept(function.jitted(), "f", ())(*arguments())
    assert function.times == 2


def test_a_program_that_cannot_be_written_computes_all_the_same(folder, caplog, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_whole", full)
    function = Traced()
    found = kept(function.jitted(), "f", ())(*arguments())
    assert np.array_equal(found[1]["y"], [2, 2, 2])
    assert "No space left on device" in caplog.text
    assert not files(folder)


def test_what_computes_on_several_devices_or_by_code_of_ones_own_is_not_kept(folder):
    own = Extension(("loss",), "loss", "module:loss", {})
    for changed in ({"own": [own]}, {"own": (), "devices": 2}):
        function = Traced().jitted()
        assert kept(function, "f", **changed) is function


def test_without_a_compilation_cache_nothing_is_kept(folder):
    jax.config.update("jax_compilation_cache_dir", None)
    function = Traced().jitted()
    assert kept(function, "f", ()) is function
