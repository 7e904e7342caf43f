"""The synthetic web: rendered shapes with captions, web noise and metadata, in img2dataset's form.

world.py    what exists and how often, as pixels and in English
web.py      the noise of the web, the shards to train on, and clean held-out images to test on
"""

from jestlab.models.data.shapes.web import NOISE_KINDS, RECOMMENDED_FILTER, make_benchmark, make_web

__all__ = ["NOISE_KINDS", "RECOMMENDED_FILTER", "make_benchmark", "make_web"]
