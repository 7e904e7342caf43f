"""An executor without processes: launches from the command line end at once, and cost milliseconds."""

import functools
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import plans_support as plans

from jestlab.platform import programs, worker
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import logs
from jestlab.platform.launch.executor import Executor, Job, JobState, JobStatus, LaunchedJob
from jestlab.platform.launch.processes import EXIT_COMPLETED, EXIT_FAILED, own_handle
from jestlab.platform.spec.resources import Resources
from jestlab.platform.store import code_texts, provenance
from jestlab.platform.store.attempt import Attempt
from jestlab.platform.store.store import Store


class InProcess(Executor):
    """Computes each attempt, from its start to its end, in the call that launches it."""

    name = "local"
    here = True
    parallel = 2

    def __init__(
        self, lab: Lab, resources: Resources | None = None, on_exit: Callable[[], None] = lambda: None
    ) -> None:
        self._lab = lab
        self._on_exit = on_exit
        self._codes: dict[LaunchedJob, int] = {}
        self._store: Store | None = None  # one for all attempts: each compiles its SQL again

    def launch(self, job: Job) -> LaunchedJob:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        launched = LaunchedJob(own_handle(str(job.log.relative_to(self._lab.root))), job.marks)
        self._store = self._store or Store.open(self._lab.store_url, create=False)
        self._codes[launched] = _attempted(self._lab, self._store, job, launched.handle)
        self._on_exit()
        return launched

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        return {job: self._status(job) for job in jobs}

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Do nothing: its jobs are over."""

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        yield self._lab.inside(job.handle.split(":", 3)[3]).read_bytes()

    def _status(self, job: LaunchedJob) -> JobStatus:
        code = self._codes.get(job)
        if code is None:
            return JobStatus(JobState.GONE)
        return JobStatus(JobState.FAILED if code else JobState.SUCCEEDED, "", code)


def _attempted(lab: Lab, store: Store, job: Job, handle: str) -> int:
    """Do what a worker does, as far as its results are concerned; return the exit code."""
    run = store.run(job.marks.fingerprint)
    recorded, wanted = plans.HERE, provenance.Wanted()
    if run.program == "command":  # the sources of toy programs are the whole repository
        wanted = replace(worker._wanted(store, run), interpreter=None)
        recorded = provenance.collect(Path(__file__).parent, [], wanted)
    attempt = Attempt.begin(
        store,
        run.fingerprint,
        job.marks.attempt,
        directory=lab.make_folder(run.directory),
        provenance=recorded,
        handle=handle,
    )
    attempt.catch_up()
    if wanted.sources is not None:
        code_texts.keep(store, wanted.sources.files.values(), provenance.cleaner())
    artifact = functools.partial(attempt.artifact, root=lab.root)
    context = worker._context(lab, run, attempt, artifact, worker.Stop())
    with job.log.open("a", encoding="utf-8") as log:
        log.write(f"--- attempt {attempt.number}\n")
        try:
            programs.get(run.program).entry(run.config, context)
        except Exception as error:
            traceback.print_exception(error, file=log)
            attempt.fail(logs.one_line(f"{type(error).__name__}: {error}"), EXIT_FAILED)
            return EXIT_FAILED
    attempt.complete()
    return EXIT_COMPLETED
