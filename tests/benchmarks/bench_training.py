"""A training step compared with Hugging Face's SigLIP in PyTorch.

python tests/benchmarks/bench_training.py [--rounds 15] [--pages own|large|default]

The same shapes, batches, and optimizer (AdamW, gradients clipped to norm 1). Each implementation runs in its
own process, as its users run it: jestlab with large pages, as its launcher starts workers, PyTorch with the
system's defaults. `--pages large` and `--pages default` give both the same. Only one computes at a time:
rounds are interleaved and ratios paired by round, so that other load on the machine affects all. On CPU all
use `THREADS` threads; on a GPU a B/16 in bfloat16 is measured too.
"""

import argparse
import functools
import importlib.util
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.support import Peer, interleave, print_table, seconds_of

THREADS = 2
STEPS_PER_ROUND = 2

OURS, EAGER, COMPILED = "jestlab", "transformers, eager", "transformers, torch.compile"

Run = Callable[[int], None]
"""Does a number of training steps and waits for their end."""


@dataclass(frozen=True)
class Shape:
    """Two towers of one size, and a batch."""

    name: str
    image_size: int
    patch_size: int
    width: int
    depth: int
    heads: int
    length: int
    batch_size: int
    compute_dtype: str = "float32"
    vocabulary_size: int = 32_000


SMALL = Shape("small: 32 px, p8, w192, d4, batch 64", 32, 8, 192, 4, 3, 16, 64)
MEDIUM = Shape("medium: ViT-S/16, 64 px, d6, batch 32", 64, 16, 384, 6, 6, 16, 32)
BASE = Shape("B/16, 256 px, bfloat16, batch 256", 256, 16, 768, 12, 12, 64, 256, "bfloat16")


def batch_of(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Random images and tokens."""
    rng = np.random.default_rng(0)
    size = (shape.batch_size, shape.image_size, shape.image_size, 3)
    images = rng.integers(0, 256, size, dtype=np.uint8)
    tokens = rng.integers(0, shape.vocabulary_size, (shape.batch_size, shape.length))
    return images, tokens.astype(np.int32)


def ours(shape: Shape) -> Run:
    """Our compiled training step under uniform selection."""
    import jax
    import jax.numpy as jnp

    from jestlab.models.config import TrainConfig
    from jestlab.models.training.state import initial_state
    from jestlab.models.training.step import build_step
    from jestlab.models.two_towers import initialize

    tower = {"width": shape.width, "depth": shape.depth, "heads": shape.heads}
    config = TrainConfig.model_validate(
        {
            "model": {
                "vision": tower | {"image_size": shape.image_size, "patch_size": shape.patch_size},
                "text": tower | {"vocabulary_size": shape.vocabulary_size, "length": shape.length},
                "embedding_dim": shape.width,
                "compute_dtype": shape.compute_dtype,
            },
            "schedule": {"batch_size": shape.batch_size, "examples_seen": 10_000 * shape.batch_size},
        }
    )
    images, tokens = batch_of(shape)
    batch = {"image": jnp.asarray(images), "text": jnp.asarray(tokens)}
    key = jax.random.key(0)
    state = initial_state(config, initialize(config.model, key), key)
    step = build_step(config, None)

    def run(steps: int) -> None:
        nonlocal state
        for _ in range(steps):
            state, metrics = step(state, batch, None)
        jax.block_until_ready(metrics)

    return run


def theirs(shape: Shape, device: str, compiled: bool) -> Run:
    """PyTorch: transformers' SigLIP with its own loss and fused AdamW."""
    import torch
    from transformers import SiglipConfig, SiglipModel

    tower = {
        "hidden_size": shape.width,
        "num_hidden_layers": shape.depth,
        "num_attention_heads": shape.heads,
        "intermediate_size": 4 * shape.width,
    }
    text = tower | {"vocab_size": shape.vocabulary_size, "max_position_embeddings": shape.length}
    vision = tower | {"image_size": shape.image_size, "patch_size": shape.patch_size}
    special = {"projection_size": shape.width, "bos_token_id": 2, "eos_token_id": 1}
    model: Any = SiglipModel(SiglipConfig(text_config=text | special, vision_config=vision))
    model.to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    images, tokens = batch_of(shape)
    pixels = torch.tensor(images, device=device).permute(0, 3, 1, 2).contiguous()
    ids = torch.tensor(tokens, device=device).long()
    lower = shape.compute_dtype == "bfloat16"

    def loss_of(pixels: Any, ids: Any) -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=lower):
            return model(input_ids=ids, pixel_values=pixels.float() / 127.5 - 1, return_loss=True).loss

    loss_of = torch.compile(loss_of) if compiled else loss_of

    def run(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(pixels, ids)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        loss.item()

    return run


def peak_flops(implementation: str, compute_dtype: str, device: str) -> float:
    """The best rate seen in products of square matrices, FLOP/s."""
    side = 2_048 if device == "cpu" else 8_192
    if implementation == OURS:
        import jax
        import jax.numpy as jnp

        a = jnp.ones((side, side), compute_dtype)
        product = jax.jit(jnp.matmul)
        best = min(seconds_of(lambda: jax.block_until_ready(product(a, a))) for _ in range(10))
    else:
        import torch

        b = torch.ones((side, side), dtype=getattr(torch, compute_dtype), device=device)
        best = min(seconds_of(lambda: (b @ b)[0, 0].item()) for _ in range(10))
    return 2 * side**3 / best


def step_flops(shape: Shape) -> float:
    """FLOPs of a training step: thrice the towers' forward passes."""
    from jestlab.analysis.flops import text_forward, vision_forward

    sizes = {"width": shape.width, "depth": shape.depth, "mlp_dim": 4 * shape.width}
    pixels = {"image_size": shape.image_size, "patch_size": shape.patch_size}
    image = vision_forward(**pixels, **sizes, pooling="map", embedding_dim=None)
    text = text_forward(length=shape.length, **sizes, embedding_dim=shape.width)
    return 3.0 * shape.batch_size * (image + text)


def work(implementation: str, shape: Shape, device: str) -> None:
    """In a process of its own: the peak rate, then the seconds a step of one round for each line read."""
    answers, sys.stdout = sys.stdout, sys.stderr
    if device == "cpu" and implementation != OURS:
        import torch

        torch.set_num_threads(THREADS)
    run = ours(shape) if implementation == OURS else theirs(shape, device, implementation == COMPILED)
    run(2)
    print(peak_flops(implementation, shape.compute_dtype, device), file=answers, flush=True)
    for _ in sys.stdin:
        seconds = seconds_of(functools.partial(run, STEPS_PER_ROUND))
        print(seconds / STEPS_PER_ROUND, file=answers, flush=True)


def start(implementation: str, shape: Shape, device: str, pages: str) -> Peer:
    """Start the process that measures one implementation when asked."""
    large = pages == "large" or (pages == "own" and implementation == OURS)
    arguments = [implementation, json.dumps(asdict(shape)), device]
    environment = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if large else {}
    return Peer([sys.executable, __file__, "--work", *arguments], environment)


def measure(
    shape: Shape, device: str, implementations: Sequence[str], pages: str, rounds: int
) -> list[tuple[str, ...]]:
    """Rows of the table for one shape: medians, and ratios of the same round."""
    workers = {name: start(name, shape, device, pages) for name in implementations}
    calls = {name: lambda worker=worker: float(worker.ask()) for name, worker in workers.items()}
    seconds = interleave(calls, rounds)
    for worker in workers.values():
        worker.close()
    peak = max(float(worker.greeting) for worker in workers.values())
    rows = []
    for name, times in seconds.items():
        median = statistics.median(times)
        ratios = (
            f"{statistics.median(o / s for o, s in zip(seconds[other], times, strict=True)):.2f}"
            if other in seconds
            else ""
            for other in (EAGER, COMPILED)
        )
        rate, share = shape.batch_size / median, step_flops(shape) / median / peak
        rows.append((shape.name, name, f"{1e3 * median:.1f}", f"{rate:.1f}", f"{share:.0%}", *ratios))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--pages", choices=("own", "large", "default"), default="own")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        implementation, shape, device = options.work
        work(implementation, Shape(**json.loads(shape)), device)
        return
    # Inherited by every worker; a library makes its pool of threads only once, when it is imported.
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # two libraries share the memory of a GPU
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:THREADS]))
    import jax

    device = "cuda" if jax.default_backend() == "gpu" else "cpu"
    has_torch = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
    if has_torch and device == "cuda":
        import torch

        has_torch = torch.cuda.is_available()
    if not has_torch:
        where = "the GPU" if device == "cuda" else "CPU"
        print(f"only jestlab is measured: install torch (for {where}) and transformers", file=sys.stderr)
    implementations = (OURS, EAGER, COMPILED) if has_torch else (OURS,)
    shapes = [SMALL, MEDIUM, *([BASE] if device == "cuda" else [])]
    rows = [
        row
        for shape in shapes
        for row in measure(shape, device, implementations, options.pages, options.rounds)
    ]
    columns = (
        "shape",
        "step of",
        "ms",
        "examples/s",
        "share of matmul peak",
        "speed, of eager",
        "of compiled",
    )
    print_table(f"medians of {options.rounds} rounds", columns, rows)


if __name__ == "__main__":
    main()
