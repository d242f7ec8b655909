"""Read experiments of earlier versions: former configuration keys in plans and journals, replaced without warnings."""

import json
from collections.abc import Mapping
from typing import Any

from dmcmc.config.legacy_keys import current_dotted


def current_experiment(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain data of an experiment file with the present configuration keys; names of methods stay."""
    current = dict(data)
    for name in ("base", "grid", "cases", "set"):
        if current.get(name):
            current[name] = current_dotted(current[name])
    if isinstance(current.get("methods"), Mapping):  # in the section ``quick`` it is a list of names
        current["methods"] = {name: current_dotted(keys) for name, keys in current["methods"].items()}
    if current.get("quick"):
        current["quick"] = current_experiment(current["quick"])
    if current.get("paper"):
        current["paper"] = [row | {"case": current_dotted(row.get("case", {}))} for row in current["paper"]]
    return current


def current_run_key(key: str) -> str:
    """Return the key of a run (JSON of case, method and seed) with the present configuration keys.

    >>> current_run_key('[{"problem.reduce": "auto"}, "gibbs", 3]')
    '[{"problem.presolve": "auto"}, "gibbs", 3]'
    """
    try:
        case, method, seed = json.loads(key)
    except (ValueError, TypeError, RecursionError):  # not written by this program
        return key
    return run_key(current_dotted(case), method, seed) if isinstance(case, dict) else key


def run_key(case: Mapping[str, Any], method: str, seed: int) -> str:
    """Return the key of a run in plans and journals."""
    return json.dumps([dict(sorted(case.items())), method, seed], ensure_ascii=False)
