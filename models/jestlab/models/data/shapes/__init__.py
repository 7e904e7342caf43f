"""The synthetic web: rendered shapes with captions, web noise and metadata, in img2dataset's form.

world.py      what exists: colours, shapes, sizes, positions, backgrounds; how often
render.py     scenes to pixels
captions.py   scenes to English
noise.py      what goes wrong on the web, and what a metadata model measures of it
web.py        shards to train on
benchmark.py  clean held-out images to test on
"""

from jestlab.models.data.shapes.benchmark import make_benchmark
from jestlab.models.data.shapes.noise import NOISE_KINDS, RECOMMENDED_FILTER
from jestlab.models.data.shapes.web import make_web

__all__ = ["NOISE_KINDS", "RECOMMENDED_FILTER", "make_benchmark", "make_web"]
