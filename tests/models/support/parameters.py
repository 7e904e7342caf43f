"""Parameters of towers without JAX's initialization, which takes seconds to compile."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.two_towers import initialize
from jestlab.models.weights.parameters import flatten, parameter_shapes, unflatten


def random_parameters(model: TwoTowers, seed: int = 0) -> dict[str, Any]:
    """Return parameters of a size at which each of them matters, with the initial temperature and bias."""
    rng = np.random.default_rng(seed)
    shapes = parameter_shapes(model)
    if model.vision.is_custom or model.text.is_custom:
        tree = jax.eval_shape(lambda: initialize(model, jax.random.key(0)))
        shapes = {name: leaf.shape for name, leaf in flatten(tree)}
    arrays = {name: 0.2 * rng.normal(size=shape) for name, shape in shapes.items()}
    arrays |= {name: 1.0 + x for name, x in arrays.items() if name.endswith("/scale")}
    arrays |= {"t": np.log([model.initial_temperature]), "b": np.array([model.initial_bias])}
    return unflatten({name: jnp.asarray(x, jnp.float32) for name, x in arrays.items()})


def random_vision_parameters(tower: VisionTower) -> dict[str, Any]:
    """Return the variables of an `ImageEncoder` without a head."""
    text = TextTower(vocabulary_size=1, length=1, width=1, depth=1, heads=1)
    model = TwoTowers(vision=tower, text=text, embedding_dim=tower.width)
    return {"params": random_parameters(model)["img"]}
