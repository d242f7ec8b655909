"""Commands that write problem files: ``dmcmc generate``, ``convert`` and ``split``."""

from argparse import Namespace
from typing import Any

from dmcmc.cli.inputs import load
from dmcmc.cli.terminal import emit
from dmcmc.config.yaml_lines import value_of
from dmcmc.formats import agent_files
from dmcmc.formats.convert import check, write
from dmcmc.generators import registry
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError


def generate(arguments: Namespace) -> int:
    """Write a generated problem to a file and print its size."""
    parameters: dict[str, Any] = {}
    for text in arguments.parameters:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"generate: expected PARAM=VALUE, such as agents=10, got {text!r}")
        if name in parameters:
            raise ConfigError(f"generate: {name}: is given twice")
        parameters[name] = value_of(value, f"generate: {name}")
    if arguments.seed is not None:
        if "seed" in parameters:
            raise ConfigError("generate: seed: is given twice (seed=... and --seed)")
        parameters["seed"] = value_of(arguments.seed, "--seed")
    check(arguments.output, arguments.to, arguments.drop)
    try:
        problem = registry.generate(arguments.family, {"seed": 0} | parameters)
    except DmcmcError as error:
        raise type(error)(f"generate {arguments.family}: {error}") from error
    written = write(problem, arguments.output, arguments.to, arguments.drop)
    dropped = f"; dropped: {', '.join(written.dropped)}" if written.dropped else ""
    emit(f"{arguments.output}: {_description(written.problem)}{dropped}")
    return 0


def _description(problem: Problem) -> str:
    """Return the size of a problem in one line.

    >>> from dmcmc import Factor
    >>> _description(Problem(("x", "y"), [2, 3], ("a",), [0, 0], (Factor.of((0,), [1, 2]),)))
    '1 agent, 2 variables, 2 to 3 values each, 1 factor over at most 1 variable, 0 forbidden entries, sense max'
    """
    low, high = int(problem.domains.min(initial=2**62)), int(problem.domains.max(initial=0))
    values = f"{low} values each" if low == high else f"{low} to {high} values each"
    arity = max((len(f.scope) for f in problem.factors), default=0)
    parts = [
        _count(problem.n_agents, "agent"),
        _count(problem.n_variables, "variable"),
        values if problem.n_variables else "no values",
        f"{_count(len(problem.factors), 'factor')} over at most {_count(arity, 'variable')}",
        f"{problem.forbidden_entries()} forbidden entries",
        f"sense {problem.sense}",
    ]
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    """Return a number with a noun in the right form."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def convert(arguments: Namespace) -> int:
    """Write a problem in another format and print its size."""
    check(arguments.output, arguments.to, arguments.drop)
    problem, _ = load(arguments.input, arguments)
    written = write(problem, arguments.output, arguments.to, arguments.drop)
    dropped = f"; dropped: {', '.join(written.dropped)}" if written.dropped else ""
    emit(f"{arguments.output}: {_description(written.problem)}{dropped}")
    return 0


def split(arguments: Namespace) -> int:
    """Write one file per agent and print their number."""
    problem, config = load(arguments.input, arguments)
    count = agent_files.write(problem, arguments.output, config.budget.bytes)
    emit(f"{arguments.output}: {_count(count, 'file')}, one per agent, and {agent_files.INDEX}")
    return 0
