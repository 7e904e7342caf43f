"""Several devices inside this process, without a mesh: `vmap` names an axis that collectives work on.

This shows what a function of one device's rows computes together with the others, in a fraction of the time
that a process with several devices takes. It doesn't show how XLA runs the program on real devices.
"""

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax

from jestlab.models.devices import AXIS


def on_devices(count: int, function: Callable[..., Any], *trees: Any) -> Any:
    """Return a function's results for the rows of each device, [count, …]; it uses the axis `AXIS`.

    The trees hold arrays [B, …]; the number of devices divides B.
    """

    def split(x: jax.Array) -> jax.Array:
        return x.reshape(count, -1, *x.shape[1:])

    # `pcast` only changes what `shard_map` knows of an array, and is an error elsewhere.
    with mock.patch.object(jax.lax, "pcast", lambda x, *_, **__: x):
        return jax.vmap(function, axis_name=AXIS)(*jax.tree.map(split, trees))
