"""Read configuration files: the settings and the ``problem`` section, with options that override keys.

The keys of the ``problem`` section are checked, and its problem is loaded or generated. Options for reading a problem
file are keys next to ``problem.file``, and options of the command line.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dmcmc.config.settings import Settings
from dmcmc.files.document import Document, Key, read, show, struct_of, value_of
from dmcmc.formats import registry as formats
from dmcmc.generators import registry
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError

FILE_OPTIONS = {
    "format": ("FORMAT", "format of the problem file (default: recognised from its content)"),
    "agents": ("N", "assign the variables to N agents"),
    "split": ("METHOD", "how to assign them with --agents: tree (default), grow or blocks"),
    "distribution": ("FILE", "file with the variables that each pyDCOP agent hosts"),
    "evidence": ("FILE", "file with the observations of a belief network; FILE:2 is its second sample"),
}
"""By name: the placeholder of the value in a help text, and the help text."""


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
        try:
            names = ("format", "evidence", "distribution")
            options = {name: str(section[name]) for name in names if name in section}
            problem = formats.load(section["file"], **options)
        except DmcmcError as error:
            raise type(error)(f"{at(('problem', 'file'))}: {error}") from error
        return with_assigned_agents(problem, section, at)
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


OPTION_OF = {
    "algorithm.name": "algorithm",
    "budget.time": "timeout",
    "budget.gap": "gap",
    "budget.memory": "memory",
    "stay.weight": "stay",
}  # keys with a command-line option of another name


class Config(Settings, frozen=True, kw_only=True):
    """A configuration: the problem and the settings.

    Attributes
    ----------
    problem : dict
        One of ``{file: PATH}``, ``{generator: NAME, ...}`` with the generator's parameters, and ``{directory: PATH}``
        with the files of ``dmcmc split``. Keys next to ``file``: ``format`` (a name in
        :data:`dmcmc.formats.registry.FORMATS`), ``evidence`` (the observations of a belief network),
        ``distribution`` (which agent hosts which variable of a pyDCOP problem), ``agents`` (the number of agents that
        the variables are assigned to) and ``split`` (how: one of
        :data:`dmcmc.inference.dpop.assign_variables.METHODS`). Next to ``directory``: ``share_assignment`` (whether
        rank 0 gathers the assignment). Next to ``file`` and ``generator``: ``presolve``, and ``scenario`` (a file with
        events that change the problem).
    """

    problem: Annotated[dict[str, Any], Meta(description="{file: PATH} or {generator: NAME, ...}")]


def read_config(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> tuple[Config, Document]:
    """Read and check a configuration file; return it together with the place of each key, for later errors.

    Parameters
    ----------
    path
        A YAML file. ``problem.file``, ``.directory``, ``.evidence``, ``.distribution`` and ``.scenario`` in it are
        relative to its folder; everything else (``output``, and what is given as an override) is relative to the
        current folder.
    overrides
        Texts ``"key.sub=value"`` with the value in YAML; missing sections are created.
    options
        Keys (``output``, ``problem.agents``) and values that command-line options set; errors name the option.

    Raises
    ------
    ConfigError
        If a key or a value is not allowed; the message is one line with the file, the line and the key.
    Unavailable
        If an optional package that the configuration needs is not installed.
    """
    document = read(os.fspath(path))
    problem = document.data.get("problem")
    if isinstance(problem, dict):
        for name in ("file", "evidence", "distribution", "directory", "scenario"):
            if isinstance(problem.get(name), str):
                problem[name] = os.path.join(os.path.dirname(os.fspath(path)), problem[name])
    for text in overrides:
        override(document, text)
    for name, value in (options or {}).items():
        document.override(tuple(name.split(".")), value, option_place(name))
    return config_of(document), document


def option_place(name: str) -> str:
    """Return the command-line option that sets a key.

    >>> option_place("problem.agents"), option_place("budget.time")
    ('--agents', '--timeout')
    """
    return f"--{OPTION_OF.get(name, name.rpartition('.')[2])}"


def parse(data: Mapping[str, Any]) -> Config:
    """Return plain data (the sections of a configuration file as nested dictionaries) as a configuration.

    >>> parse({"problem": {"file": "a.npz"}, "local": {"runs": 2}}).local.runs
    2
    """
    return config_of(Document("", dict(data)))


def override(document: Document, text: str) -> None:
    """Set one key of a document from the text ``key.sub=value`` of ``--set``."""
    dotted, equals, value = text.partition("=")
    key = tuple(part.strip() for part in dotted.split("."))
    if not equals or not all(key):
        raise ConfigError(f"--set {text}: expected KEY=VALUE, such as local.runs=20")
    place = f"--set {'.'.join(key)}"
    document.override(key, value_of(value, place), place)


def config_of(document: Document) -> Config:
    """Build a configuration from a document and check it, also keys that depend on each other."""
    from dmcmc.config.make_settings import check_settings  # loads the samplers, which a usage error does not need

    config = struct_of(Config, document.data, document.at)
    check_section(config.problem, document)
    if "directory" in config.problem and isinstance(config.start, dict):
        raise ConfigError(f"{document.at(('start',))}: with one file per agent, give the folder of agents' values")
    if "presolve" in config.problem:
        config = msgspec.structs.replace(config, presolve=config.problem["presolve"])
    check_settings(config, document)
    return config
