"""What goes wrong on the web: kinds of noise, and the scores that metadata models would give each pair.

The scores are measurements: they follow the truth with an error, so that a filter on them removes most of the
noise, not all of it, and loses some clean pairs. Near-duplicates are honest pairs and pass every filter on
quality: they are a matter of diversity, which `uniqueness` measures, as a deduplication pass would.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jestlab.models.config import NoiseRates
from jestlab.models.data.shapes.world import Scenes

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NOISE_KINDS = ("clean", *NoiseRates.model_fields)
"""Values of the metadata column `noise`."""

RECOMMENDED_FILTER = "similarity > 0.25 and aesthetic > 4.3 and text_quality > 0.45"
"""Keeps about 96% of the clean pairs and of the near-duplicates, and about 1.5% of all other noise."""

# Mean and standard deviation over pairs of a kind: CLIP similarity, LAION aesthetic, quality of the text,
# uniqueness (1 − cosine to the nearest other image, as deduplication measures it, scaled to 0…1).
_SCORES: dict[str, tuple[tuple[float, float], ...]] = {
    "clean": ((0.32, 0.035), (5.6, 0.60), (0.78, 0.12), (0.80, 0.10)),
    "mismatched": (
        (0.15, 0.035),
        (5.6, 0.60),
        (0.78, 0.12),
        (0.80, 0.10),
    ),  # plus what the caption happens to get right
    "alt_text": ((0.17, 0.040), (5.4, 0.70), (0.22, 0.12), (0.80, 0.10)),
    "noise_image": ((0.14, 0.040), (3.1, 0.60), (0.78, 0.12), (0.80, 0.10)),
    "blank": ((0.15, 0.040), (3.0, 0.60), (0.78, 0.12), (0.80, 0.10)),
    "vague": ((0.23, 0.040), (5.5, 0.60), (0.35, 0.12), (0.80, 0.10)),
    "near_duplicate": ((0.32, 0.035), (5.6, 0.60), (0.78, 0.12), (0.15, 0.10)),
}
_SIMILARITY_OF_AGREEMENT = 0.10  # of a mismatched caption that gets everything right

_ALT_TEXTS = (
    "IMG_{0:04d}.jpg",
    "DSC{0:05d}",
    "click to enlarge",
    "image {1}",
    "untitled",
    "banner {2}x{3}",
    "product photo {0}",
    "thumbnail",
    "add to cart",
    "share on social media",
    "page {1} of {3}",
    "logo.png",
)
_VAGUE = (
    "a picture of a thing",
    "an image",
    "some object",
    "a nice photo",
    "a shape on a background",
    "picture of something",
    "a simple drawing",
    "an object in an image",
)


def draw_kinds(rates: NoiseRates, count: int, rng: np.random.Generator) -> Ints:
    """Which kind each pair is.

    Args:
        rates: Share of each kind of noise.
        count: n.
        rng: The generator.

    Returns:
        int64[n], into `NOISE_KINDS`.
    """
    shares = np.array([getattr(rates, kind) for kind in NOISE_KINDS[1:]])
    edges = np.cumsum([max(0.0, 1.0 - shares.sum()), *shares])
    return np.minimum(np.searchsorted(edges, rng.random(count), side="right"), len(NOISE_KINDS) - 1)


def other_scenes(scenes: Scenes, rng: np.random.Generator) -> Scenes:
    """For each scene a random one of another class: what a mismatched caption describes."""
    others = Scenes.draw(rng, len(scenes))
    label = others.label
    while (same := label == scenes.label).any():
        label = np.where(same, Scenes.draw(rng, len(scenes)).label, label)
    return Scenes.of(label, others.rest)


def alt_texts(count: int, rng: np.random.Generator) -> list[str]:
    """n captions as a content management system writes them."""
    kinds = rng.integers(0, len(_ALT_TEXTS), count)
    numbers = rng.integers(0, (9999, 20, 900, 600), (count, 4))
    return [_ALT_TEXTS[kind].format(*row) for kind, row in zip(kinds, numbers.tolist(), strict=True)]


def vague_texts(count: int, rng: np.random.Generator) -> list[str]:
    """n captions that are true of anything."""
    return [_VAGUE[i] for i in rng.integers(0, len(_VAGUE), count)]


def measure(kinds: Ints, agreement: Floats, rng: np.random.Generator) -> dict[str, Floats]:
    """The metadata scores of n pairs.

    Args:
        kinds: int64[n], into `NOISE_KINDS`.
        agreement: float64[n], share of a mismatched caption's attributes that are true of the image.
        rng: The generator of the measurements' errors.

    Returns:
        `similarity` (as CLIP's cosine, about 0.1 to 0.4), `aesthetic` (as LAION's predictor, about 2 to 7.5),
        `text_quality`, `uniqueness` and `punsafe` (0 to 1): float64[n] each, rounded as a table would hold
        them.
    """
    table = np.array([_SCORES[kind] for kind in NOISE_KINDS])[kinds]  # [n, 4, 2]
    scores = table[:, :, 0] + table[:, :, 1] * rng.standard_normal((len(kinds), 4))
    mismatched = kinds == NOISE_KINDS.index("mismatched")
    similarity = scores[:, 0] + np.where(mismatched, _SIMILARITY_OF_AGREEMENT * agreement, 0.0)
    return {
        "similarity": np.clip(similarity, -1.0, 1.0).round(4),
        "aesthetic": np.clip(scores[:, 1], 1.0, 10.0).round(3),
        "text_quality": np.clip(scores[:, 2], 0.0, 1.0).round(3),
        "uniqueness": np.clip(scores[:, 3], 0.0, 1.0).round(3),
        "punsafe": (rng.random(len(kinds)) * 0.1).round(4),
    }
