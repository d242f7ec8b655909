"""Problems named on the command line: a problem file, or a configuration that says which."""

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dmcmc.cli.file_roles import is_configuration, is_packed, problem_kind
from dmcmc.config.configuration import OPTION_OF, Config, config_of, option_place, read_config
from dmcmc.config.document import Document
from dmcmc.config.file_options import FILE_OPTIONS
from dmcmc.config.problem_section import divided, problem_of
from dmcmc.config.yaml_lines import value_of
from dmcmc.files.write import check_writable
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, FileError

if TYPE_CHECKING:
    from dmcmc.run.planning.setup import Setup

_IN_YAML = ("agents", "seed", *OPTION_OF.values())  # the others are words


def options_of(arguments: Namespace) -> dict[str, Any]:
    """Return the options that a command has and was given as keys of a configuration."""
    words = ("algorithm", "seed", "device", "output", "checkpoint")
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
    """Read a configuration as :func:`dmcmc.config.configuration.read_config` does; say what else a file is."""
    if is_configuration(path):
        if is_packed(path):
            raise ConfigError(f"{path}: is packed; a configuration is read as it is, so unpack it first")
    elif kind := problem_kind(path):
        raise ConfigError(f"{path}: is a problem file ({kind}), not a configuration; use 'dmcmc solve {path}'")
    return read_config(path, overrides, options)


def load(path: str, arguments: Namespace) -> tuple[Problem, Config]:
    """Return the problem of a problem file or of a configuration file, and the configuration (or a default one)."""
    options = options_of(arguments)
    if is_configuration(path):
        config, document = configuration(path, options=options)
        return problem_of(config.problem, document), config
    from dmcmc.formats import registry as formats

    problem = formats.load(
        path, format=arguments.format, evidence=arguments.evidence, distribution=arguments.distribution
    )
    document = Document("", {"problem": {"file": path}})
    for name, value in options.items():
        document.override(tuple(name.split(".")), value, option_place(name))
    config = config_of(document)
    return divided(problem, config.problem, document.at), config


def check_run(config: Config, document: Document) -> None:
    """Raise what is wrong with a run's output file or device before any work is done."""
    if config.output is not None:
        try:
            check_writable(config.output)
        except FileError as error:
            raise FileError(f"{document.at(('output',))}: {error}") from error
    if config.device == "cuda":
        from dmcmc.inference.runtime.device import resolve_device

        resolve_device(config.device)


def explainer(wanted: bool) -> "Callable[[Setup], None] | None":
    """Return what prints the choices of a run, if that is wanted."""
    if not wanted:
        return None
    from dmcmc.report.explain import print_explanation
    from dmcmc.report.plan import plan_of

    return lambda setup: print_explanation(plan_of(setup))
