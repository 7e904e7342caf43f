"""Baselines in PyTorch: Algorithm 1 with its matrix, block products alone, and two towers.

Letters: B super-batch, b sub-batch, n examples, L tokens, D width, E embedding.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from jestlab.models.config import TwoTowers
from jestlab.models.selection.criteria import chunk_sizes
from jestlab.models.selection.torch import Embeddings

Select = Callable[[torch.Generator, Embeddings, Embeddings, int], Tensor]
"""Function of noise, learner, reference, and b that returns indices, int64 [b]."""


def random_models(count: int, width: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Any:
    """Return the embeddings of a random learner and reference, their pairs somewhat alike."""
    generator = torch.Generator(device).manual_seed(0)

    def one() -> Embeddings:
        image, other = (torch.randn(count, width, device=device, generator=generator) for _ in range(2))
        text = 0.3 * image + 0.7 * other
        image, text = (functional.normalize(z, dim=1).to(dtype) for z in (image, text))
        return Embeddings(image, text, torch.tensor(10.0, device=device), torch.tensor(-10.0, device=device))

    return one(), one()


def dense(
    noise: torch.Generator, learner: Embeddings, reference: Embeddings, batch_size: int, chunks: int = 16
) -> Tensor:
    """Algorithm 1 with a matrix [B, B] of scores; each round adds its chunk's rows and columns.

    Call it without gradients, like `block_products`.
    """

    def losses(z: Embeddings) -> Tensor:
        logits = (z.image @ z.text.T) * z.temperature + z.bias
        logits.diagonal().neg_()
        return functional.softplus(logits)

    scores_ij = losses(learner) - losses(reference)
    scores = scores_ij.diagonal().clone()
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    indices = []
    for size in chunk_sizes(batch_size, chunks):
        gumbel = -torch.empty_like(scores).exponential_(generator=noise).log()
        relative = 100.0 * (scores - scores.masked_fill(chosen, -torch.inf).max())
        chunk = (relative + gumbel).masked_fill(chosen, -torch.inf).topk(size).indices
        chosen[chunk] = True
        scores += scores_ij[chunk].sum(dim=0) + scores_ij[:, chunk].sum(dim=1)
        indices.append(chunk)
    return torch.cat(indices)


def block_products(
    learner: Embeddings, reference: Embeddings, batch_size: int, chunks: int, block_logits: int
) -> Tensor:
    """Sum the rows of the products that `select` computes, in the same blocks: the limit of its speed."""
    sums = torch.zeros(len(learner.image), device=learner.image.device)
    first = 0
    for size in chunk_sizes(batch_size, chunks)[:-1]:
        chunk, rows = slice(first, first + size), max(1, block_logits // size)
        for start in range(0, len(sums), rows):
            part = slice(start, start + rows)
            for z in (learner, reference):
                for x, y in ((z.image, z.text), (z.text, z.image)):
                    sums[part] += (x[part] @ y[chunk].T).sum(dim=1)
        first += size
    return sums


class Block(nn.Module):  # type: ignore[misc]
    """Attention, then an MLP, each on the normalized residual stream."""

    def __init__(self, width: int, heads: int, mlp_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, mlp_dim), nn.GELU("tanh"), nn.Linear(mlp_dim, width))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: [n, L, D] → [n, L, D]."""
        q, k, v = self.qkv(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class Towers(nn.Module):  # type: ignore[misc]
    """SigLIP's two towers with the sizes of a jestlab config, their temperature and bias."""

    def __init__(self, sizes: TwoTowers) -> None:
        super().__init__()
        vision, text = sizes.vision, sizes.text

        def blocks(tower: Any) -> nn.Sequential:
            mlp_dim = tower.mlp_dim or 4 * tower.width
            each = (Block(tower.width, tower.heads, mlp_dim) for _ in range(tower.depth))
            return nn.Sequential(*each, nn.LayerNorm(tower.width, eps=1e-6))

        patches = (vision.image_size // vision.patch_size) ** 2
        self.patch = nn.Conv2d(3, vision.width, vision.patch_size, vision.patch_size)
        self.image_positions = nn.Parameter(0.02 * torch.randn(1, patches, vision.width))
        self.image_blocks = blocks(vision)
        self.probe = nn.Parameter(0.02 * torch.randn(1, 1, vision.width))
        self.attention = nn.MultiheadAttention(vision.width, vision.heads, batch_first=True)
        self.pooled = nn.Sequential(
            nn.LayerNorm(vision.width, eps=1e-6), nn.Linear(vision.width, 4 * vision.width),
            nn.GELU("tanh"), nn.Linear(4 * vision.width, vision.width),
        )  # fmt: skip
        same = vision.width == sizes.embedding_dim
        self.image_head = nn.Identity() if same else nn.Linear(vision.width, sizes.embedding_dim)
        self.tokens = nn.Embedding(text.vocabulary_size, text.width)
        self.text_positions = nn.Parameter(0.02 * torch.randn(1, text.length, text.width))
        self.text_blocks = blocks(text)
        self.text_head = nn.Linear(text.width, sizes.embedding_dim)
        self.log_t, self.bias = nn.Parameter(torch.tensor(2.3)), nn.Parameter(torch.tensor(-10.0))

    def compile_blocks(self, backend: str) -> None:
        """Compile every block. Blocks of one shape share the code: whole towers would take minutes."""
        for block in (*self.image_blocks, *self.text_blocks):
            if isinstance(block, Block):
                block.compile(backend=backend, dynamic=False)

    def forward(self, images: Tensor, tokens: Tensor) -> Embeddings:
        """Embed uint8 [n, h, w, 3] and int64 [n, L] in bfloat16: unit rows, float32 [n, E]."""
        with torch.autocast(images.device.type, torch.bfloat16):
            x = self.patch(images.permute(0, 3, 1, 2).float() / 127.5 - 1).flatten(2).transpose(1, 2)
            x = self.image_blocks(x + self.image_positions)
            x = self.attention(self.probe.expand(len(x), -1, -1), x, x, need_weights=False)[0][:, 0]
            image = self.image_head(x + self.pooled(x))
            text = self.text_head(self.text_blocks(self.tokens(tokens) + self.text_positions)[:, -1])
        image, text = (functional.normalize(z.float(), dim=1) for z in (image, text))
        return Embeddings(image, text, self.log_t.exp(), self.bias)


class Trainer:
    """Training steps of towers, on random images and texts."""

    def __init__(
        self, sizes: TwoTowers, batch_size: int, super_batch: int, device: torch.device, backend: str
    ) -> None:
        torch.manual_seed(0)
        self.size, self.towers = batch_size, Towers(sizes).to(device)
        self.towers.compile_blocks(backend)
        self.optimizer = torch.optim.AdamW(
            self.towers.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=1e-4, fused=True
        )
        side, text = sizes.vision.image_size, sizes.text
        self.images = torch.randint(256, (super_batch, side, side, 3), dtype=torch.uint8, device=device)
        self.texts = torch.randint(text.vocabulary_size, (super_batch, text.length), device=device)
        self.noise = torch.Generator(device).manual_seed(0)
        self.reference = random_models(super_batch, sizes.embedding_dim, device)[1]

    def uniform(self) -> None:
        """Train on the first b examples."""
        self.train(self.images[: self.size], self.texts[: self.size])

    def jest(self, select: Select) -> None:
        """Score the super-batch, select from it, and train; the reference's embeddings are cached."""
        with torch.no_grad():
            parts = [
                self.towers(*x)
                for x in zip(self.images.split(self.size), self.texts.split(self.size), strict=True)
            ]
            image, text = (torch.cat([z[i] for z in parts]) for i in (0, 1))
            learner = parts[0]._replace(image=image, text=text)
            indices = select(self.noise, learner, self.reference, self.size)
        self.train(self.images[indices], self.texts[indices])

    def train(self, images: Tensor, texts: Tensor) -> None:
        """Take a step of AdamW on the sigmoid loss, with gradients clipped to norm 1."""
        z = self.towers(images, texts)
        logits = z.image @ z.text.T * z.temperature + z.bias
        signs = 2 * torch.eye(len(logits), device=logits.device) - 1
        functional.softplus(-signs * logits).sum(dim=1).mean().backward()
        nn.utils.clip_grad_norm_(self.towers.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
