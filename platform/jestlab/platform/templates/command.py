"""A linear classifier in NumPy, which STUDY.yaml trains. Replace it with your own training.

To try it without a study, run `python SCRIPT`: it then prints its reports.
"""

from __future__ import annotations

import numpy as np

from jestlab.platform import client

STEPS, BATCH = 200, 32
SCALES = np.geomspace(1.0, 0.05, 20)  # of the features: so gradient descent without momentum learns slowly


def examples(count: int, *seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw points and their classes, 0 or 1."""
    random = np.random.default_rng(seed)
    points = random.normal(size=(count, SCALES.size))
    return points * SCALES, (points.sum(1) > 0).astype(float)


def main() -> None:
    """Train, and report to jestlab."""
    run = client.run()
    rate, momentum = run.config.get("learning_rate", 0.02), run.config.get("momentum", 0.9)
    done, weights, velocity = 0, np.zeros(SCALES.size), np.zeros(SCALES.size)
    state = run.directory / "state.npz"
    if run.resume and state.exists():  # continue an interrupted attempt
        with np.load(state) as saved:
            done, weights, velocity = int(saved["done"]), saved["weights"], saved["velocity"]
    test, truth = examples(2_000, 1, run.seed)

    for step in range(done + 1, STEPS + 1):
        x, y = examples(BATCH, 2, run.seed, step)
        guess = 1 / (1 + np.exp(-x @ weights))
        velocity = momentum * velocity - rate * x.T @ (guess - y) / BATCH
        weights = weights + velocity
        if step % 20 == 0:
            accuracy = ((test @ weights > 0) == truth).mean()
            run.log(step, loss=float(-np.log(np.where(y == 1, guess, 1 - guess)).mean()))
            run.evaluation(step, examples_seen=step * BATCH, scores={"test/accuracy": float(accuracy)})
            run.progress(step, STEPS)
        if step % 50 == 0 or run.stop_requested():
            run.flush()  # reports are saved before the checkpoint
            unfinished = state.with_name("unfinished.npz")
            np.savez(unfinished, done=step, weights=weights, velocity=velocity)
            unfinished.replace(state)
            if run.stop_requested():
                return


if __name__ == "__main__":
    main()
