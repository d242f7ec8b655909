"""Read the problem and the configuration that a command line names."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dmcmc.cli.file_roles import is_configuration, is_packed, problem_kind
from dmcmc.config.configuration import OPTION_OF, Config, config_of, option_place, read_config
from dmcmc.config.document import Document
from dmcmc.config.file_options import FILE_OPTIONS
from dmcmc.config.problem_section import problem_of, with_assigned_agents
from dmcmc.config.yaml_lines import value_of
from dmcmc.files.write import check_writable
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, FileError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory

if TYPE_CHECKING:
    from dmcmc.solving.monitoring.progress import Explain

_IN_YAML = ("agents", "seed", *OPTION_OF.values())  # options whose values are read as YAML; the others are text


def options_of(arguments: Namespace) -> dict[str, Any]:
    """Return the given options of a command as keys and values of a configuration.

    Options that were not given, or that the command does not have, are left out.
    """
    words = ("algorithm", "seed", "device", "output", "checkpoint", "start")
    keys = {name: f"problem.{name}" for name in FILE_OPTIONS} | {name: name for name in words}
    keys |= {option: key for key, option in OPTION_OF.items()}
    given = {key: (name, getattr(arguments, name, None)) for name, key in keys.items()}
    return {
        key: value_of(value, f"--{name}") if name in _IN_YAML else value
        for key, (name, value) in given.items()
        if value is not None
    }


def configuration(
    path: str, overrides: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> tuple[Config, Document]:
    """Read a configuration file (:func:`dmcmc.config.configuration.read_config`); reject problem files."""
    if is_configuration(path):
        if is_packed(path):
            raise ConfigError(f"{path}: is compressed; decompress the configuration first")
    elif kind := problem_kind(path):
        raise ConfigError(f"{path}: is a problem file ({kind}), not a configuration; use 'dmcmc solve {path}'")
    return read_config(path, overrides, options)


def load(path: str, arguments: Namespace) -> tuple[Problem, Config]:
    """Return the problem and the configuration of a file; a problem file has the default configuration."""
    options = options_of(arguments)
    if is_configuration(path):
        config, document = configuration(path, options=options)
        return problem_of(config.problem, document), config
    from dmcmc.formats import registry as formats

    document = Document("", {"problem": {"file": path}})
    for name, value in options.items():
        document.override(tuple(name.split(".")), value, option_place(name))
    config = config_of(document)
    with MEMORY_ACCOUNT.open(config.budget.bytes, resident_memory()):
        problem = formats.load(
            path, format=arguments.format, evidence=arguments.evidence, distribution=arguments.distribution
        )
    return with_assigned_agents(problem, config.problem, document.at), config


def check_run(config: Config, document: Document) -> None:
    """Check the output file and the device of a run before any work is done; raise an error if one is not usable."""
    if config.output is not None:
        try:
            check_writable(config.output)
        except FileError as error:
            raise FileError(f"{document.at(('output',))}: {error}") from error
    if config.device == "cuda":
        from dmcmc.inference.runtime.device import resolve_device

        resolve_device(config.device)


def explainer(is_wanted: bool) -> "Explain | None":
    """Return a function that prints the plan of a run (``--explain``); None if it is not wanted."""
    if not is_wanted:
        return None
    from dmcmc.report.explain import print_explanation
    from dmcmc.report.plan import plan_of

    return lambda setup: print_explanation(plan_of(setup))
