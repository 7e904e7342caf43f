"""A model and a benchmark so small that tests train and measure them in a moment."""

from typing import Any

TOWERS: dict[str, Any] = {
    "vision": {"width": 16, "depth": 1, "heads": 2, "patch_size": 8, "pooling": "mean"},
    "text": {"width": 16, "depth": 1, "heads": 2, "length": 8, "pooling": "mean"},
    "embedding_dim": 16,
}
BENCHMARK = {"classification_examples": 96, "retrieval_examples": 32, "image_size": 16}
