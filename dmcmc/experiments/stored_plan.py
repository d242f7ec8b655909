"""Read the plan in the folder of an experiment: the experiment, the order of its runs, and the machine."""

from pathlib import Path
from typing import Any

import msgspec

from dmcmc.files.json_text import plain_json
from dmcmc.inference.runtime.errors import FileError


class PublishedNumbers(msgspec.Struct):
    """A row of published numbers: of a case and a method, numbers or texts."""

    method: str
    case: dict[str, Any] = {}
    time: float | str | None = None
    simulated_time: float | str | None = None
    objective: float | str | None = None
    ratio: float | str | None = None
    bound: float | str | None = None


class StoredExperiment(msgspec.Struct):
    """The fields of an experiment that reports use.

    :class:`dmcmc.experiments.plan.Experiment` describes them. Further fields are allowed, so that folders of other
    versions can be read. In the section ``quick``, ``methods`` is a list of names.
    """

    title: str = "Experiment"
    text: str = ""
    base: dict[str, Any] | None = None
    grid: dict[str, Any] | None = None
    cases: list[dict[str, Any]] | None = None
    set: dict[str, Any] | None = None
    methods: dict[str, dict[str, Any]] | list[str] | None = None
    quick: "StoredExperiment | None" = None
    paper: list[PublishedNumbers] = []
    report: dict[str, str] = {}


class StoredPlanFile(msgspec.Struct):
    """The contents of ``experiment.json``.

    Attributes
    ----------
    experiment : dict
        The experiment.
    runs : list of str
        The keys of all runs, in the order of the plan.
    machine : dict
        Versions and hardware of the machine.
    """

    experiment: dict[str, Any]
    runs: list[str]
    machine: dict[str, Any] = {}


def read_plan(path: Path) -> StoredPlanFile:
    """Read the plan of an experiment.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FileError
        If the file cannot be read or is damaged; one line with the field.
    """
    try:
        stored = msgspec.convert(plain_json(path.read_bytes()), StoredPlanFile)
        msgspec.convert(stored.experiment, StoredExperiment)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # a ValidationError is a ValueError
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise FileError(f"{path}: is not the plan of an experiment: {reason}") from None
    return stored
