"""A configuration: what to solve, and how."""

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

OPTION_OF = {"budget.time": "timeout", "budget.gap": "gap", "budget.memory": "memory"}  # keys that have options


class Config(Settings, frozen=True, kw_only=True):
    """What to solve, and how.

    ``problem`` is ``{file: PATH}``, ``{generator: NAME, ...}`` with the generator's parameters, or
    ``{directory: PATH}`` as ``dmcmc split`` writes it, with ``share_assignment`` where all may know the answer. Beside
    a file, ``format`` may say what :data:`dmcmc.formats.registry.FORMATS` calls it, ``evidence`` where the observations
    of a UAI or BIF network are, ``distribution`` where a pyDCOP problem's owners are; ``agents`` (a number) and
    ``split`` (one of :data:`dmcmc.inference.dpop.assign_variables.METHODS`) give the variables to new agents. ``reduce`` stands
    there too.
    """

    problem: Annotated[dict[str, Any], Meta(description="{file: PATH} or {generator: NAME, ...}")]


def read_config(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> tuple[Config, Document]:
    """Read a configuration file, with the place of each key for later errors.

    Parameters
    ----------
    path
        A YAML file. ``problem.file``, ``.directory``, ``.evidence`` and ``.distribution`` in it are relative to its
        folder; everything else (``output``, and what is given as an override) is relative to the current folder.
    overrides
        ``"key.sub=value"`` each, the value in YAML; sections are created where needed.
    options
        Keys (``output``, ``problem.agents``) set by options of their own; errors name those.

    Raises
    ------
    ConfigError
        One line with the file, the line and the key.
    Unavailable
        For what later versions bring.
    """
    document = read(os.fspath(path))
    problem = document.data.get("problem")
    if isinstance(problem, dict):
        for name in ("file", "evidence", "distribution", "directory"):
            if isinstance(problem.get(name), str):
                problem[name] = os.path.join(os.path.dirname(os.fspath(path)), problem[name])
    for text in overrides:
        override(document, text)
    for name, value in (options or {}).items():
        document.override(tuple(name.split(".")), value, option_place(name))
    return config_of(document), document


def option_place(name: str) -> str:
    """Return the option that sets a key.

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
    """Apply one ``key.sub=value``, as ``--set`` has it."""
    dotted, equals, value = text.partition("=")
    key = tuple(part.strip() for part in dotted.split("."))
    if not equals or not all(key):
        raise ConfigError(f"--set {text}: expected KEY=VALUE, such as local.runs=20")
    place = f"--set {'.'.join(key)}"
    document.override(key, value_of(value, place), place)


def config_of(document: Document) -> Config:
    """Build a configuration and check what one field alone does not show."""
    config = struct_of(Config, document.data, document.at)
    check_section(config.problem, document)
    if "reduce" in config.problem:
        config = msgspec.structs.replace(config, reduce=config.problem["reduce"])
    check_settings(config, document)
    return config
