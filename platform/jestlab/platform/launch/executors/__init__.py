"""The executors, by name. Each is imported when it is asked for: their clients take a second to import."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

from jestlab.platform.errors import UserError
from jestlab.platform.spec.resources import Place

if TYPE_CHECKING:
    from jestlab.platform.lab import Lab
    from jestlab.platform.launch.executor import Executor
    from jestlab.platform.settings import Settings
    from jestlab.platform.spec.resources import Resources

NAMES: tuple[Place, ...] = get_args(Place)


def choose(asked: Place | None, resources: Resources, settings: Settings) -> Place:
    """Where a study's runs go: as the command says, else the study, else the user's settings, else here.

    Args:
        asked: What `--on` says.
        resources: Of the study.
        settings: The user's.

    Raises:
        UserError: The study wants a TPU slice and nobody says where it is to be had.
    """
    place = asked or resources.on or settings.on or "local"
    if place == "local" and asked is None and resources.tpu is not None:
        raise UserError(
            f"each run is to compute on {resources.tpu}, and nothing says where: "
            "--on kubernetes, --on vertex, or --on local to compute here all the same"
        )
    return place


def get(
    place: Place,
    resources: Resources,
    settings: Settings,
    lab: Lab,
    on_exit: Callable[[], None] = lambda: None,
) -> Executor:
    """The executor of that name.

    Args:
        place: Its name.
        resources: What each run gets.
        settings: The user's accounts.
        lab: Where this machine keeps things.
        on_exit: Called when a job of this machine has ended.

    Raises:
        UserError: The settings or the study do not say what it needs; one line that names the key.
    """
    if place == "kubernetes":
        from jestlab.platform.launch.executors.kubernetes import Kubernetes

        return Kubernetes.of(resources, settings, mounted=lab.remote is None)
    if place == "vertex":
        from jestlab.platform.launch.executors.vertex import Vertex

        return Vertex.of(resources, settings, mounted=lab.remote is None)
    from jestlab.platform.launch.executors.local import Local

    return Local(lab, resources, on_exit)


def find(place: Place, settings: Settings, lab: Lab) -> Executor:
    """An executor for jobs that were launched before: it asks, stops and reads logs, and launches nothing.

    Args:
        place: As the store says it.
        settings: The user's accounts.
        lab: Where this machine keeps things.
    """
    if place == "kubernetes":
        from jestlab.platform.launch.executors.kubernetes import Kubernetes

        return Kubernetes(settings.kubernetes)
    if place == "vertex":
        from jestlab.platform.launch.executors.vertex import Vertex

        return Vertex(settings.vertex)
    from jestlab.platform.launch.executors.local import Local

    return Local(lab)
