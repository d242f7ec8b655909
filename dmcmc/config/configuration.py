"""Read configuration files: the ``problem`` section and the settings, with options that override keys."""

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dmcmc.config.document import Document
from dmcmc.config.problem_section import check_section
from dmcmc.config.settings import Settings, check_settings
from dmcmc.config.validate import struct_of
from dmcmc.config.yaml_lines import read, value_of
from dmcmc.inference.runtime.errors import ConfigError

OPTION_OF = {
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
    config = struct_of(Config, document.data, document.at)
    check_section(config.problem, document)
    if "directory" in config.problem and isinstance(config.start, dict):
        raise ConfigError(f"{document.at(('start',))}: with one file per agent, give the folder of agents' values")
    if "presolve" in config.problem:
        config = msgspec.structs.replace(config, presolve=config.problem["presolve"])
    check_settings(config, document)
    return config
