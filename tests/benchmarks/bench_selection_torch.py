"""Joint selection in PyTorch compared with the dense algorithm and with its physical limit.

    python tests/benchmarks/bench_selection_torch.py [--largest 163840] [--rounds 3]
    python tests/benchmarks/bench_selection_torch.py --alone B D NAME

All in one process, taking turns, medians; f = 0.8, N = 16, the sigmoid loss:

* dense: Algorithm 1 with its matrix of all pairs, summing over it in each round, as printed;
* jestlab: `jestlab.models.selection.torch.select`, with no matrix;
* matmuls: the block products that `select` computes, each block summed by rows and nothing else: the limit.

Peak memory is that of processes that do one thing once, `--alone`.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import softplus

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.support import interleave, parse_options, print_table, seconds_of

from jestlab.models.selection import torch as selection
from jestlab.models.selection.criteria import Embeddings, chunk_sizes

FILTERING_RATIO, CHUNKS = 0.8, 16
SIZES = [(5_120, 64), (5_120, 768), (20_480, 64), (20_480, 768)]
LARGEST = 163_840


def models(super_batch: int, width: int) -> list[Embeddings]:
    """Random learner and reference, their pairs somewhat alike; in place, for a low peak of memory."""
    generator = torch.Generator().manual_seed(0)
    both = []
    for _ in range(2):
        image, text = (torch.randn(super_batch, width, generator=generator) for _ in range(2))
        text.mul_(0.7).add_(image, alpha=0.3)
        for rows in (image, text):
            rows /= rows.norm(dim=1, keepdim=True)
        both.append(Embeddings(image, text, torch.tensor(10.0), torch.tensor(-10.0)))
    return both


def jestlab(both: list[Embeddings]) -> None:
    """Indices, without a matrix."""
    count = round(len(both[0].image) * (1 - FILTERING_RATIO))
    selection.select(torch.Generator().manual_seed(1), *both, batch_size=count, chunks=CHUNKS)


def matmuls(both: list[Embeddings]) -> None:
    """The products of all candidates with each chunk but the last, in the same blocks."""
    super_batch = len(both[0].image)
    size = chunk_sizes(round(super_batch * (1 - FILTERING_RATIO)), CHUNKS)[-1]
    rows = max(1, selection.BLOCK_LOGITS // size)
    for number in range(CHUNKS - 1):
        chunk = slice(number * size, (number + 1) * size)
        for z in both:
            for x, y in ((z.image, z.text[chunk].T), (z.text, z.image[chunk].T)):
                for first in range(0, super_batch, rows):
                    (x[first : first + rows] @ y).sum(dim=1)


def dense(both: list[Embeddings]) -> None:
    """Algorithm 1 as it should have been printed."""
    generator, super_batch = torch.Generator().manual_seed(1), len(both[0].image)
    scores: Any = 0.0
    for sign, z in zip((1, -1), both, strict=True):
        logits = z.image @ (z.temperature * z.text).T + z.bias
        logits.diagonal().neg_()
        scores = scores + sign * softplus(logits)
    is_sampled = torch.zeros(super_batch, 1)
    conditional = own = scores.diagonal()
    for size in chunk_sizes(round(super_batch * (1 - FILTERING_RATIO)), CHUNKS):
        noise = -torch.empty(super_batch).exponential_(generator=generator).log()
        perturbed = (100 * conditional + noise).masked_fill(is_sampled[:, 0] == 1, -torch.inf)
        is_sampled[perturbed.topk(size).indices] = 1
        conditional = own + (scores * is_sampled).sum(dim=0) + (scores * is_sampled.T).sum(dim=1)


CONTENDERS: dict[str, Callable[[list[Embeddings]], None]] = {
    "dense": dense,
    "jestlab": jestlab,
    "matmuls": matmuls,
}


def peak_mb() -> float:
    """This process's peak of resident memory, so far."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def once(super_batch: int, width: int, name: str) -> dict[str, float]:
    """One call in this process: its seconds, and MB at its peak above those of the embeddings."""
    jestlab(models(400, 8))  # what PyTorch itself loads at its first call
    found = models(super_batch, width)
    before = peak_mb()
    seconds = seconds_of(partial(CONTENDERS[name], found))
    return {"seconds": seconds, "above_mb": peak_mb() - before}


def alone(super_batch: int, width: int, name: str) -> dict[str, float]:
    """What `once` finds in a process of its own."""
    command = [sys.executable, __file__, "--alone", str(super_batch), str(width), name]
    found: dict[str, float] = json.loads(subprocess.check_output(command))
    return found


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(once(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
        return
    options = parse_options(__doc__, largest=LARGEST, rounds=3)
    rows = []
    for super_batch, width in (size for size in SIZES if size[0] <= options.largest):
        found = models(super_batch, width)
        calls = {name: partial(seconds_of, partial(call, found)) for name, call in CONTENDERS.items()}
        seconds = {k: statistics.median(v) for k, v in interleave(calls, options.rounds).items()}
        del found, calls
        above = {name: alone(super_batch, width, name)["above_mb"] for name in ("dense", "jestlab")}
        for name, median in seconds.items():
            ratios = [f"{median / seconds[other]:.2f}" for other in ("jestlab", "matmuls")]
            memory = f"{above[name]:,.0f}" if name in above else ""
            rows.append((f"{super_batch:,}/{width}", name, f"{median:.3g}", *ratios, memory))
    if options.largest >= LARGEST:
        for width in (64, 768):
            figures = alone(LARGEST, width, "jestlab")
            memory = f"{figures['above_mb']:,.0f}"
            rows.append((f"{LARGEST:,}/{width}", "jestlab", f"{figures['seconds']:.3g}", "", "", memory))
    columns = ["B/D", "who", "seconds", "of jestlab", "of matmuls", "MB above the embeddings"]
    threads = f"{torch.get_num_threads()} threads"
    about = f"PyTorch {torch.__version__}, {threads}; f = {FILTERING_RATIO}, N = {CHUNKS}"
    print_table(about, columns, rows)


if __name__ == "__main__":
    main()
