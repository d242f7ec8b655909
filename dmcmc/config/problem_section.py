"""The ``problem`` section of a configuration: check its keys, and load or generate the problem."""

from collections.abc import Callable, Mapping
from typing import Any

from dmcmc.config.document import Document, Key, show
from dmcmc.config.file_options import FILE_OPTIONS
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError

PRESOLVE = ("auto", "merge", "none")


def check_section(problem: Mapping[str, Any], document: Document) -> None:
    """Raise a ``ConfigError`` for unknown keys and wrong values; the problem file itself is not read."""
    given = [name for name in ("file", "generator", "directory") if name in problem]
    if len(given) != 1:
        listed = " and ".join(given) if given else "none of them"
        raise ConfigError(f"{document.at(('problem',))}: expected 'file', 'generator' or 'directory', got {listed}")
    place = document.at(("problem", given[0]))
    if not isinstance(problem[given[0]], str) or not problem[given[0]]:
        what = {"file": "a file path", "directory": "a folder"}.get(given[0], "the name of a generator")
        raise ConfigError(f"{place}: expected {what}, got {show(problem[given[0]])}")
    if given == ["file"]:
        for name in problem.keys() - {"file", "presolve", "scenario", *FILE_OPTIONS}:
            known = ", ".join((*FILE_OPTIONS, "presolve", "scenario"))
            raise ConfigError(f"{document.at(('problem', name))}: unknown key; keys of a problem file: {known}")
        agents = problem.get("agents", 1)
        if isinstance(agents, bool) or not isinstance(agents, int):
            raise ConfigError(f"{document.at(('problem', 'agents'))}: expected a whole number, got {show(agents)}")
        if "split" in problem and "agents" not in problem:
            raise ConfigError(f"{document.at(('problem', 'split'))}: needs problem.agents, the number of agents")
    if given == ["directory"]:
        _check_directory(problem, document)
    if problem.get("presolve", "auto") not in PRESOLVE:
        given_value = show(problem["presolve"])
        raise ConfigError(f"{document.at(('problem', 'presolve'))}: expected auto, merge or none, got {given_value}")
    for name, value in problem.items():
        if not isinstance(value, str | int | float):
            raise ConfigError(f"{document.at(('problem', name))}: expected a word or a number, got {show(value)}")


def _check_directory(problem: Mapping[str, Any], document: Document) -> None:
    """Raise a ``ConfigError`` for wrong keys of a ``directory`` problem, which has one file per agent."""
    for name in problem.keys() - {"directory", "share_assignment"}:
        place = document.at(("problem", name))
        raise ConfigError(f"{place}: unknown key; the only key of a folder of agents' files is share_assignment")
    shared = problem.get("share_assignment", False)
    if not isinstance(shared, bool):
        place = document.at(("problem", "share_assignment"))
        raise ConfigError(f"{place}: expected true or false, got {show(shared)}")


def problem_of(section: Mapping[str, Any], document: Document | None = None) -> Problem:
    """Generate or load the problem of a ``problem`` section; the seed of a generated problem is 0 by default.

    Parameters
    ----------
    section
        The field ``problem`` of a :class:`~dmcmc.config.configuration.Config`.
    document
        The configuration file, so that errors name the line.

    Raises
    ------
    DmcmcError
        If the generator or the file reader fails; the message begins with the place in the configuration.
    """
    at = (document or Document("")).at
    if "directory" in section:
        raise ConfigError(f"{at(('problem', 'directory'))}: has one file per agent, which only 'dmcmc run' reads")
    if "file" in section:
        from dmcmc.formats import registry as formats

        try:
            names = ("format", "evidence", "distribution")
            options = {name: str(section[name]) for name in names if name in section}
            problem = formats.load(section["file"], **options)
        except DmcmcError as error:
            raise type(error)(f"{at(('problem', 'file'))}: {error}") from error
        return with_assigned_agents(problem, section, at)
    from dmcmc.generators import registry

    not_generated = ("presolve", "scenario")
    params = {"seed": 0} | {name: value for name, value in section.items() if name not in not_generated}
    family = params.pop("generator")
    try:
        return registry.generate(family, params)
    except DmcmcError as error:
        raise type(error)(_generator_error(str(error), params, at)) from error


def with_assigned_agents(problem: Problem, section: Mapping[str, Any], at: Callable[[Key], str]) -> Problem:
    """Return the problem with its variables assigned to ``problem.agents`` agents, if the section has that key."""
    if "agents" not in section:
        return problem
    from dmcmc.inference.dpop.assign_variables import split

    try:
        return split(problem, section["agents"], section.get("split", "tree"))
    except ConfigError as error:
        name, _, message = str(error).partition(":")
        raise ConfigError(f"{at(('problem', name))}:{message}") from None


def _generator_error(message: str, params: Mapping[str, Any], at: Any) -> str:
    """Return a generator's error message with the place of the parameter that it names in front."""
    name, colon, text = message.partition(":")
    if colon and name.isidentifier():
        return f"{at(('problem', name))}:{text}"
    name = message.split(maxsplit=1)[0] if message else ""
    if name in params:
        return f"{at(('problem', name))}:{message[len(name) :]}"
    return f"{at(('problem', 'generator'))}: {message}"
