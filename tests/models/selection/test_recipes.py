"""The recipes of docs/how-to/open-clip.md train models of open_clip and Lightning on selected sub-batches."""

import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.oracle

ROOT = Path(__file__).parents[3]
COLORS = {"red": (220, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 220)}
TINY = {
    "embed_dim": 32,
    "custom_text": True,
    "init_logit_bias": -10,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 8, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}
OPEN_CLIP = [
    "--model=local-dir:tiny", "--precision=fp32", "--workers=1", "--device=cpu", "--siglip", "--lr=0.003",
    "--warmup=5", "--dataset-type=webdataset", "--epochs=2",
]  # fmt: skip

# Counts, for each super-batch and each sub-batch, the examples and those whose caption is the color.
DRIVER = """
import jest_open_clip as recipe
import open_clip

words = [open_clip.get_tokenizer("local-dir:tiny")([word])[0, 1].item() for word in ("red", "green", "blue")]


def counts(images, texts):
    colors = images.mean(dim=(2, 3)).argmax(dim=1)
    is_right = texts[:, 1] == recipe.torch.tensor(words)[colors]
    return len(images), is_right.sum().item()


class Counting(recipe.SubBatches):
    def sub_batch(self, batch):
        chosen = super().sub_batch(batch)
        print("COUNTS", *counts(*batch), *counts(*chosen), flush=True)
        return chosen


recipe.SubBatches = Counting
recipe.main.train_one_epoch = recipe.train_one_epoch
recipe.main.main(recipe.others)
"""


def recipe(name: str) -> str:
    """A block of the page, by the name in its first line."""
    page = (ROOT / "docs" / "how-to" / "open-clip.md").read_text()
    [code] = re.findall(rf"```python\n(# {re.escape(name)}\n.*?)```", page, re.DOTALL)
    return str(code)


def write_shard(path: Path, count: int, wrong: float) -> None:
    """Pictures of one color, with its name, or, for a share, another one's."""
    random = np.random.default_rng(count)
    with tarfile.open(path, "w") as tar:
        for number in range(count):
            color, other = random.choice(list(COLORS), 2, replace=False)
            pixels = np.clip(COLORS[color] + random.normal(0, 20, (16, 16, 3)), 0, 255).astype(np.uint8)
            picture = io.BytesIO()
            Image.fromarray(pixels).save(picture, "jpeg")
            caption = other if random.random() < wrong else color
            for suffix, content in (("jpg", picture.getvalue()), ("txt", caption.encode())):
                member = tarfile.TarInfo(f"{number:05d}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def test_open_clip_trains_on_the_selected_examples(tmp_path):
    """The wrapper has at most 40 lines. It prefers right captions, as its reference learned them."""
    pytest.importorskip("open_clip_train", reason="torch or transformers is not installed")
    code = recipe("jest_open_clip.py")
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 40
    assert code == (ROOT / "docs" / "case-studies" / "open_clip" / "jest_open_clip.py").read_text()
    (tmp_path / "jest_open_clip.py").write_text(code)
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "open_clip_config.json").write_text(json.dumps({"model_cfg": TINY}))
    write_shard(tmp_path / "curated.tar", 960, wrong=0.0)
    write_shard(tmp_path / "web.tar", 640, wrong=0.6)

    def train(*words: str) -> str:
        command = [sys.executable, *words, *OPEN_CLIP]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    of_reference = ["--train-data=curated.tar", "--train-num-samples=960", "--batch-size=32"]
    train("-m", "open_clip_train.main", *of_reference, "--name=reference")
    checkpoint = "logs/reference/checkpoints/epoch_2.pt"
    web = ["--train-data=web.tar", "--train-num-samples=640", "--batch-size=160", "--name=jest"]
    said = train("driver.py", f"--jest-reference={checkpoint}", *web)
    counts = np.array([line.split()[1:] for line in said.splitlines() if line.startswith("COUNTS")], int)
    assert counts[:, 0].tolist() == [160] * 8 and counts[:, 2].tolist() == [32] * 8
    candidates, selected = counts[:, 1].sum() / (8 * 160), counts[:, 3].sum() / (8 * 32)
    assert 0.3 < candidates < 0.5
    assert selected > 0.8
    assert "128/640 (100%)" in said  # of open_clip's own log
    assert (tmp_path / "logs" / "jest" / "checkpoints" / "epoch_2.pt").exists()


def test_a_lightning_module_trains_on_the_selected_examples(tmp_path, monkeypatch):
    lightning = pytest.importorskip("lightning", reason="torch or transformers is not installed")
    import torch
    from torch.nn.functional import normalize
    from torch.utils.data import DataLoader, TensorDataset

    code = recipe("jest_lightning.py")
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 40
    names: dict[str, Any] = {}
    exec(compile(code, "jest_lightning.py", "exec"), names)
    image = normalize(torch.randn(320, 8, generator=torch.Generator().manual_seed(0)))
    noise = normalize(torch.randn(320, 8, generator=torch.Generator().manual_seed(1)))
    is_right = torch.arange(320) % 4 == 0
    text = torch.where(is_right[:, None], image, noise)
    shares = []

    class Clip(names["Selecting"], lightning.LightningModule):  # type: ignore[misc, name-defined, valid-type]
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8, bias=False)
            self.layer.weight = torch.nn.Parameter(torch.eye(8).roll(1, dims=0))  # it knows no pair
            self.reference = lambda batch: (batch[0], batch[1], 10.0, -10.0)

        def embed(self, batch):
            assert self.training == torch.is_grad_enabled()
            return normalize(self.layer(batch[0])), batch[1], 10.0, -10.0

        def training_step(self, batch):
            shares.append((len(batch[0]), batch[2].float().mean().item()))
            one, other, t, b = self.embed(batch)
            return torch.nn.functional.softplus(-(t * (one * other).sum(dim=1) + b)).mean()

        def train_dataloader(self):
            return self.selected(DataLoader(TensorDataset(image, text, is_right), batch_size=80))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    monkeypatch.chdir(tmp_path)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    lightning.Trainer(max_epochs=1, accelerator="cpu", enable_model_summary=False, **quiet).fit(Clip())
    assert [size for size, _ in shares] == [16] * 4
    assert sum(share for _, share in shares) / 4 > 0.5  # of the candidates, 0.25
