"""A configuration's ``problem`` section: what it may say, and the problem that it describes."""

from collections.abc import Callable, Mapping
from typing import Any

from dmcmc.config.document import Document, Key, show
from dmcmc.config.file_options import FILE_OPTIONS
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError

REDUCE = ("auto", "merge", "none")


def check_section(problem: Mapping[str, Any], document: Document) -> None:
    """Raise what is wrong with the section, as far as that shows without reading the file."""
    given = [name for name in ("file", "generator", "directory") if name in problem]
    if len(given) != 1:
        found = " and ".join(given) if given else "none of them"
        raise ConfigError(f"{document.at(('problem',))}: expected 'file', 'generator' or 'directory', got {found}")
    place = document.at(("problem", given[0]))
    if not isinstance(problem[given[0]], str) or not problem[given[0]]:
        what = {"file": "a file path", "directory": "a folder"}.get(given[0], "the name of a generator")
        raise ConfigError(f"{place}: expected {what}, got {show(problem[given[0]])}")
    if given == ["file"]:
        if "partition" in problem:
            raise ConfigError(f"{document.at(('problem', 'partition'))}: is called problem.split")
        for name in problem.keys() - {"file", "reduce", *FILE_OPTIONS}:
            known = ", ".join((*FILE_OPTIONS, "reduce"))
            raise ConfigError(f"{document.at(('problem', name))}: unknown key; beside a problem file: {known}")
        agents = problem.get("agents", 1)
        if isinstance(agents, bool) or not isinstance(agents, int):
            raise ConfigError(f"{document.at(('problem', 'agents'))}: expected a whole number, got {show(agents)}")
        if "split" in problem and "agents" not in problem:
            raise ConfigError(f"{document.at(('problem', 'split'))}: problem.agents says how many; it is missing")
    if given == ["directory"]:
        _check_directory(problem, document)
    if problem.get("reduce", "auto") not in REDUCE:
        given_value = show(problem["reduce"])
        raise ConfigError(f"{document.at(('problem', 'reduce'))}: expected auto, merge or none, got {given_value}")
    for name, value in problem.items():
        if not isinstance(value, str | int | float):
            raise ConfigError(f"{document.at(('problem', name))}: expected a word or a number, got {show(value)}")


def _check_directory(problem: Mapping[str, Any], document: Document) -> None:
    """Raise what is wrong with the section of a problem whose agents have files of their own."""
    for name in problem.keys() - {"directory", "share_assignment"}:
        place = document.at(("problem", name))
        raise ConfigError(f"{place}: unknown key; beside a folder of agents' files: share_assignment")
    shared = problem.get("share_assignment", False)
    if not isinstance(shared, bool):
        place = document.at(("problem", "share_assignment"))
        raise ConfigError(f"{place}: expected true or false, got {show(shared)}")


def problem_of(section: Mapping[str, Any], document: Document | None = None) -> Problem:
    """Generate or load the problem that a section describes. Its seed is its own, 0 by default.

    Parameters
    ----------
    section
        As a :class:`~dmcmc.config.configuration.Config` has it.
    document
        Where it stands, so that errors name the line.

    Raises
    ------
    DmcmcError
        What the generator or the file reader finds wrong, after the place in the configuration.
    """
    at = (document or Document("")).at
    if "directory" in section:
        raise ConfigError(f"{at(('problem', 'directory'))}: each agent has a file of its own; only 'run' reads them")
    if "file" in section:
        from dmcmc.formats import registry as formats

        try:
            names = ("format", "evidence", "distribution")
            options = {name: str(section[name]) for name in names if name in section}
            problem = formats.load(section["file"], **options)
        except DmcmcError as error:
            raise type(error)(f"{at(('problem', 'file'))}: {error}") from error
        return divided(problem, section, at)
    from dmcmc.generators import registry

    params = {"seed": 0} | {name: value for name, value in section.items() if name != "reduce"}
    family = params.pop("generator")
    try:
        return registry.generate(family, params)
    except DmcmcError as error:
        raise type(error)(_generator_error(str(error), params, at)) from error


def divided(problem: Problem, section: Mapping[str, Any], at: Callable[[Key], str]) -> Problem:
    """Return the problem with its variables given to ``problem.agents`` agents, if that is asked for."""
    if "agents" not in section:
        return problem
    from dmcmc.inference.dpop.assign_variables import split

    try:
        return split(problem, section["agents"], section.get("split", "tree"))
    except ConfigError as error:
        name, _, message = str(error).partition(":")
        raise ConfigError(f"{at(('problem', name))}:{message}") from None


def _generator_error(message: str, params: Mapping[str, Any], at: Any) -> str:
    """Return a generator's error, which starts with the parameter's name, with the parameter's place in front."""
    name, colon, rest = message.partition(":")
    if colon and name.isidentifier():
        return f"{at(('problem', name))}:{rest}"
    name = message.split(maxsplit=1)[0] if message else ""
    if name in params:
        return f"{at(('problem', name))}:{message[len(name) :]}"
    return f"{at(('problem', 'generator'))}: {message}"
