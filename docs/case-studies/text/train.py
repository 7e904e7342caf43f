"""Train a byte-level transformer, on batches or tokens that are selected by learnability: see text.yaml.

    python train.py        started by hand: one uniform run on data/, which prints its reports

Letters: B super-batch, b batch, L bytes of a sequence, D width, f = 1 − b / B.
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jestlab.models.selection.torch import select
from jestlab.platform import client

DEFAULTS = {
    "data": "data",
    "corpus": "web",  # or pages
    "split": "test",  # what to evaluate on: val to choose settings
    "rule": "uniform",  # or independent: select sequences
    "criterion": "learnability",
    "filtering_ratio": 0.5,
    "gain": 10.0,  # on losses in nats per byte
    "tokens": 1.0,  # the share of tokens that are trained on; below 1: RHO-1
    "width": 128,
    "depth": 5,
    "length": 128,
    "batch_size": 8,
    "steps": 160,
    "learning_rate": 2e-3,
    "evaluate_every": 32,
    "evaluated": 128,  # sequences of each test set
}


class Transformer(nn.Module):
    """A causal transformer over bytes, with normalization before each part and learned positions."""

    def __init__(self, width: int, depth: int, length: int) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(256, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads=width // 32) for _ in range(depth))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 256)
        for table in (self.bytes, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def losses(self, rows: Tensor) -> Tensor:
        """Return the loss of each byte but the first, in nats: int64 [n, L + 1] → float32 [n, L]."""
        x = self.bytes(rows[:, :-1]) + self.positions.weight[: rows.shape[1] - 1]
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.out(self.norm(x)).transpose(1, 2), rows[:, 1:], reduction="none")


class Layer(nn.Module):
    """Attention and a network of width 4 D."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer: float32 [n, L, D] → [n, L, D]."""
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1))  # [n, L, 3, H, D / H]
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.merge(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


def forward_flops(width: int, depth: int, length: int) -> int:
    """Return the FLOPs F of the forward pass of one sequence, as matrix products.

    Per byte: 2 × 12 D² in each layer (4 D² in attention, 8 D² in the network), 4 L D for the products of
    attention, counted in full although half of them are masked, and 2 × 256 D for the logits.
    """
    return length * (depth * (24 * width**2 + 4 * length * width) + 512 * width)


def hardest_tokens(learner: Tensor, reference: Tensor, share: float) -> Tensor:
    """Return the mask of RHO-1: the share of a batch's tokens with the highest excess loss.

    Args:
        learner: Losses by the learner, float32 [b, L].
        reference: Losses by the reference, float32 [b, L].

    Source: arXiv:2404.07965, Sec. 2.2.
    """
    kept = max(1, round(share * learner.numel()))
    chosen = select(None, learner.flatten(), reference.flatten(), batch_size=kept, rule="greedy").indices
    mask = torch.zeros(learner.numel(), dtype=torch.bool)
    mask[chosen] = True
    return mask.view_as(learner)


def rows_of(file: Path, length: int) -> Tensor:
    """Cut a file into sequences, uint8 [n, L + 1]; each ends with the byte that starts the next."""
    text = torch.from_numpy(np.fromfile(file, dtype=np.uint8))
    return text.unfold(0, length + 1, length)


def main() -> None:
    """Train and evaluate one run of the study."""
    run = client.run()
    launching = {"command", "cwd", "seed"}  # keys that jestlab adds
    if unknown := run.config.keys() - DEFAULTS.keys() - launching:
        raise ValueError(f"unknown keys {sorted(unknown)}: expected {', '.join(DEFAULTS)}")
    config = DEFAULTS | run.config
    size = {name: config[name] for name in ("width", "depth", "length")}
    batch, steps, folder = config["batch_size"], config["steps"], Path(config["data"])
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    generator = torch.Generator().manual_seed(run.seed)

    names = ["pages"] if config["corpus"] == "pages" else ["web-pages", "web-changelogs"]
    parts = [rows_of(folder / f"{name}.train.bin", config["length"]) for name in names]
    train, pages = torch.cat(parts), len(parts[0])  # the first rows are of manual pages
    tests = {}
    for name in ("pages", "changelogs"):  # evenly spaced: the same rows in all runs
        rows = rows_of(folder / f"{name}.{config['split']}.bin", config["length"])
        some = torch.linspace(0, len(rows) - 1, min(len(rows), config["evaluated"])).long()
        tests[name] = rows[some].long()

    learner = Transformer(**size)
    by_sequence, by_token = config["rule"] != "uniform", config["tokens"] < 1
    reference = None
    if by_token or (by_sequence and config["criterion"] != "hard_learner"):
        reference = Transformer(**size)
        reference.load_state_dict(torch.load(run.needs["reference"] / "model.pt"))
    optimizer = torch.optim.AdamW(learner.parameters(), lr=config["learning_rate"], betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(  # linear warm-up over 5%, then a cosine to 10%
        optimizer, lambda s: min((s + 1) / (0.05 * steps), 0.55 + 0.45 * math.cos(math.pi * s / steps))
    )

    # FLOPs of one step, by the forward cost F of a sequence: training takes 3 F for each of b sequences.
    # Selection of sequences adds F for each of B and each model that scores them, and RHO-1 adds F for each
    # of b by the reference: the learner's losses are those of its training step, whose backward pass
    # is counted in full although masked tokens need less of it.
    candidates = round(batch / (1 - config["filtering_ratio"])) if by_sequence else batch
    scorings = batch if by_token else 0
    if by_sequence:
        scorings = candidates * (1 + (reference is not None))
    step_flops = forward_flops(**size) * (3 * batch + scorings)

    def evaluate(step: int) -> None:
        with run.phase("evaluation"), torch.no_grad():
            nats = {name: learner.losses(rows).mean().item() for name, rows in tests.items()}
        scores = {f"{name}/bits_per_byte": x / math.log(2) for name, x in nats.items()}
        run.evaluation(step, examples_seen=step * batch, flops_total=step * step_flops, scores=scores)

    order = torch.empty(0, dtype=torch.int64)
    from_pages = 0.0  # the share of manual pages in the bytes trained on, summed over steps
    run.progress(0, steps)  # the time before counts as start-up
    for step in range(1, steps + 1):
        if len(order) < candidates:  # the next epoch
            order = torch.cat([order, torch.randperm(len(train), generator=generator)])
        drawn, order = order[:candidates], order[candidates:]
        if by_sequence:
            rows = train[drawn].long()
            with torch.no_grad():
                scored = [None if m is None else m.losses(rows).mean(1) for m in (learner, reference)]
            settings = {name: config[name] for name in ("rule", "criterion", "gain")}
            drawn = drawn[select(generator, *scored, batch_size=batch, **settings).indices]
        rows = train[drawn].long()
        losses = learner.losses(rows)
        loss = losses.mean()
        if by_token:
            with torch.no_grad():
                mask = hardest_tokens(losses, reference.losses(rows), config["tokens"])
            loss = losses[mask].mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        kept = mask if by_token else torch.ones_like(losses, dtype=torch.bool)
        from_pages += (kept[drawn < pages].sum() / kept.sum()).item()
        if step % 10 == 0 or step == steps:
            run.log(step, loss=loss, pages_share=from_pages / step)
            run.progress(step, steps)
        if step % config["evaluate_every"] == 0 or step == steps:
            evaluate(step)
        if run.stop_requested():
            return
    torch.save(learner.state_dict(), run.directory / "model.pt")
    run.artifact("model", run.directory / "model.pt")


if __name__ == "__main__":
    main()
