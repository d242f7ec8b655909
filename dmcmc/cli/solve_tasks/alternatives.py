"""The options ``--alternatives``, ``--within`` and ``--distance`` of ``dmcmc solve``."""

from argparse import Namespace
from typing import Any

from dmcmc.calendars.file.plan import Calendar
from dmcmc.config.yaml_lines import value_of
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.questions.alternatives import AlternativesRequest


def requested_alternatives(
    arguments: Namespace, problem: Problem, calendar: Calendar | None
) -> AlternativesRequest | None:
    """Return the alternatives that a command line asks for; None without ``--alternatives``.

    ``calendar`` is the calendar in the problem file, if it is one.

    In a calendar each meeting counts once for ``--distance``, by the variable of its first participant.

    Raises
    ------
    ConfigError
        If an option is not allowed.
    """
    given = {name: getattr(arguments, name) for name in ("alternatives", "within", "distance")}
    if given["alternatives"] is None:
        for name in ("within", "distance"):
            if given[name] is not None:
                raise ConfigError(f"--{name}: needs --alternatives K; add it, or remove --{name}")
        return None
    if arguments.task != "mpe":
        raise ConfigError(f"--alternatives: is for --task mpe, not for --task {arguments.task}; remove the option")
    if arguments.method == "mini-bucket" or arguments.z is not None:
        raise ConfigError("--alternatives: is not for mini-buckets; remove the option, or --z and --method mini-bucket")
    words = {name: text for name, text in given.items() if text is not None}
    values: dict[str, Any] = {"distance": 1} | {name: value_of(text, f"--{name}") for name, text in words.items()}
    over = None
    if calendar is not None and values["distance"] != 1:
        over = calendar.variables
    return AlternativesRequest(values["alternatives"], values.get("within"), values["distance"], over).checked(problem)
