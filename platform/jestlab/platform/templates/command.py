"""A linear classifier, which STUDY.yaml trains. Replace it with your own training.

It uses only Python's standard library. After the first launch, you can also start it by hand. It then prints
its reports: `PYTHONPATH=lab/cache/client python3 SCRIPT`.
"""

import json
import math
import random
from operator import mul

from jestlab.platform import client

STEPS, BATCH = 200, 32
# Scales of the features, from 1 to 0.05: so gradient descent without momentum learns slowly.
SCALES = [0.05 ** (k / 19) for k in range(20)]


def examples(count: int, seed: str) -> list[tuple[list[float], int]]:
    """Draw points and their classes, 0 or 1."""
    source = random.Random(seed)
    points = [[source.gauss(0, 1) for _ in SCALES] for _ in range(count)]
    return [(list(map(mul, point, SCALES)), int(sum(point) > 0)) for point in points]


def dot(a: list[float], b: list[float]) -> float:
    """Multiply two vectors."""
    return float(sum(map(mul, a, b)))


def main() -> None:
    """Train, and report to jestlab."""
    run = client.run()
    rate, momentum = run.config.get("learning_rate", 0.02), run.config.get("momentum", 0.9)
    done, weights, velocity = 0, [0.0 for _ in SCALES], [0.0 for _ in SCALES]
    state = run.directory / "state.json"
    if run.resume and state.exists():  # continue an interrupted attempt
        done, weights, velocity = json.loads(state.read_text())
    test = examples(2_000, f"test {run.seed}")

    for step in range(done + 1, STEPS + 1):
        drawn = examples(BATCH, f"train {run.seed} {step}")
        batch = [(x, y, 1 / (1 + math.exp(-dot(x, weights)))) for x, y in drawn]
        for k in range(len(SCALES)):
            gradient = sum((guess - y) * x[k] for x, y, guess in batch) / BATCH
            velocity[k] = momentum * velocity[k] - rate * gradient
            weights[k] += velocity[k]
        if step % 20 == 0:
            accuracy = sum((dot(x, weights) > 0) == y for x, y in test) / len(test)
            loss = sum(-math.log(guess if y else 1 - guess) for _, y, guess in batch) / BATCH
            run.log(step, loss=loss)
            run.evaluation(step, examples_seen=step * BATCH, scores={"test/accuracy": accuracy})
            run.progress(step, STEPS)
        if step % 50 == 0 or run.stop_requested():
            run.flush()  # reports are saved before the checkpoint
            unfinished = state.with_name("unfinished.json")
            unfinished.write_text(json.dumps([step, weights, velocity]))
            unfinished.replace(state)
            if run.stop_requested():
                return


if __name__ == "__main__":
    main()
