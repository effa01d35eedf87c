"""The runs of notebooks, found without executing them: to plan, to compute or to hand them on."""

from collections.abc import Mapping, Sequence
from typing import Any

from fssl_core.experiments.dry_run import Asked, asked_by, with_needed
from fssl_core.experiments.notebooks import find_notebooks, in_environment, parameters_for, resources_wanted
from fssl_core.experiments.store import run_all
from fssl_core.paths import PROFILES
from fssl_core.settings import Settings, check_choice


def asked(
    ids: Sequence[str], profile: str, parameters: Mapping[str, Any] | None = None, *, estimate: bool = False
) -> dict[str, Asked]:
    """By ID, what notebooks ask for.

    Args:
        ids: which, as for :func:`~fssl_core.experiments.notebooks.find_notebooks`; those without a profile have none.
        profile: one of :data:`~fssl_core.paths.PROFILES`.
        parameters: values for the notebooks' parameters; each must have them.
        estimate: whether settings may stand in for those that results will choose: to plan, not to compute.

    Raises:
        SettingError: an unknown ID, profile or parameter, or a value that cannot be used.
    """
    check_choice("profile", profile, PROFILES)
    values = {"profile": profile, **(parameters or {})}
    notebooks = [notebook for notebook in find_notebooks(ids) if "profile" in notebook.as_stored()["parameters"]]
    return {
        notebook.id: asked_by(notebook.code(), parameters_for(notebook, values), estimate=estimate)
        for notebook in notebooks
    }


def compute(
    ids: Sequence[str], profile: str, parameters: Mapping[str, Any] | None = None
) -> tuple[dict[str, Settings], dict[str, tuple[str, ...]]]:
    """Compute the runs of notebooks without the notebooks; arguments as those of :func:`asked`.

    On a cluster (``$DASK_SCHEDULER_ADDRESS``) runs at profiles that are made for GPUs want one each, unless
    ``$FSSL_RESOURCES`` says what they want.

    Returns:
        by key the runs, and by ID the statements of notebooks whose further runs only the notebook can know.
    """
    computed = None
    while True:  # settings of some runs are chosen by the results of others
        by_notebook = asked(ids, profile, parameters)
        settings = with_needed(settings for one in by_notebook.values() for settings in one.settings)
        later = {id: one.unknown for id, one in by_notebook.items() if one.unknown}
        if settings.keys() != computed:
            with in_environment(resources_wanted(profile)):
                run_all([*settings.values()])
        if not later or settings.keys() == computed:
            return settings, later
        computed = settings.keys()


def runs_of(ids: Sequence[str], profile: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Settings]:
    """By key, the runs that notebooks need, what these build on before them; arguments as those of :func:`asked`."""
    return with_needed(settings for one in asked(ids, profile, parameters).values() for settings in one.settings)
