"""The paper's variants with fewer layers: all layers cost the same, and tracing takes time for each."""

from jestlab.models.config import TwoTowers, Variant


def shallow(variant: Variant, depth: int = 2) -> TwoTowers:
    """Make a variant whose towers have so few layers."""
    config = TwoTowers(variant=variant)
    towers = {"vision": config.vision, "text": config.text}
    return config.model_copy(
        update={name: tower.model_copy(update={"depth": depth}) for name, tower in towers.items()}
    )
