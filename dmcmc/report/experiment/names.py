"""Name the cases of an experiment and the quantities that it measured, for headings of tables and charts."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from dmcmc.report.experiment.statistics import BOUND, Findings


class Quantities(NamedTuple):
    """The names of the quantities that an experiment measured.

    Attributes
    ----------
    objective, reference, time : str
        Names of the objective, of what it is divided by, and of the time.
    """

    objective: str
    reference: str
    time: str

    @property
    def ratio(self) -> str:
        """The name of the objective divided by its reference."""
        return f"{self.objective} / {self.reference}"


_TASKS = {  # task of all methods: names of its objective and of its time
    "mar": ("ln Z", "time of messages and tables"),
    "max-marginals": ("best objective", "time of messages and tables"),
    "bucket": ("largest entry of the message", "time of the largest bucket"),
}


def quantities_of(findings: Findings) -> Quantities:
    """Return the names of what the methods of an experiment measured: a task's own names, else utility or cost."""
    compare = (findings.experiment.get("report") or {}).get("compare", BOUND)
    reference = "best bound" if compare == BOUND else compare
    methods = findings.experiment.get("methods") or {}
    tasks = {(methods.get(name) or {}).get("task") for name in findings.methods}
    task = tasks.pop() if len(tasks) == 1 else None
    if task in _TASKS:
        objective, time = _TASKS[task]
        return Quantities(objective, reference, time)
    senses = {record["sense"] for record in findings.records if record.get("sense")}
    objective = {("max",): "utility", ("min",): "cost"}.get(tuple(senses), "objective")
    return Quantities(objective, reference, "time of a run")


def case_title(case: Mapping[str, Any], findings: Findings) -> str:
    """Return the name of a case for readers: its values with the names of their keys, files without folders.

    The case without changes is named after the values that the other cases change, if the configuration has them.
    """
    if case:
        return values_text(case)
    base = findings.experiment.get("base") or {}
    varied = dict.fromkeys(key for other in findings.cases for key in other)
    defaults = {key: value for key in varied if (value := value_of_base(base, key)) is not None}
    return f"default ({values_text(defaults)})" if defaults else "default"


def values_text(values: Mapping[str, Any]) -> str:
    """Return configuration keys and values as text.

    >>> values_text({"problem.file": "$FOLDER/spot5/54.wcsp.xz", "problem.generator": "grid", "problem.domain_size": 5})
    '54, grid, domain size 5'
    """
    texts = []
    for key, value in values.items():
        name = key.rpartition(".")[2].replace("_", " ")
        if name == "file":
            texts.append(PurePosixPath(str(value)).name.partition(".")[0])
        else:
            texts.append(str(value) if name in ("generator", "method") else f"{name} {value}")
    return ", ".join(texts)


def value_of_base(base: Any, key: str) -> Any:
    """Return the value of a dotted key in nested sections; None if it is missing."""
    for part in key.split("."):
        base = base.get(part) if isinstance(base, dict) else None
    return base
