"""A tracker in memory."""

from typing import Any

from jestlab.models.training.tracker import Tracker


class Recorder(Tracker):
    """Keeps what a run reports; asks to stop from a step on, or raises KeyboardInterrupt at one."""

    def __init__(self, stop_after: int | None = None, fail_at: int | None = None):
        super().__init__(lambda: stop_after is not None and self.step >= stop_after)
        self.metrics: dict[int, dict[str, Any]] = {}
        self.scores: dict[int, dict[str, float]] = {}
        self.seconds: dict[int, float | None] = {}
        self.steps: list[tuple[int, int]] = []
        self.fail_at, self.unflushed = fail_at, 0

    @property
    def step(self) -> int:
        return self.steps[-1][0]

    def log(self, step, metrics):
        self.metrics.setdefault(step, {}).update(metrics)
        self.unflushed += 1

    def evaluation(self, step, examples_seen, flops_total, scores, *, seconds=None):
        self.scores[step], self.seconds[step] = dict(scores), seconds
        self.metrics.setdefault(step, {}).update(seen=examples_seen, flops=flops_total)
        self.unflushed += 1

    def progress(self, step, total_steps):
        self.steps.append((step, total_steps))
        if step == self.fail_at:
            raise KeyboardInterrupt

    def flush(self):
        self.unflushed = 0

    def values(self, name: str) -> dict[int, Any]:
        """A metric's value by step."""
        return {step: metrics[name] for step, metrics in self.metrics.items() if name in metrics}
