"""Commands about problem files, and what is installed.

``dmcmc generate``, ``convert`` and ``split`` write problem files, and ``graph`` shows and draws the graphs of a
problem. ``samplers``, ``algorithms`` and ``info`` list what is installed.
"""

import json
import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from dmcmc.cli.inputs import load
from dmcmc.cli.progress import emit
from dmcmc.files.document import value_of
from dmcmc.formats import agent_files
from dmcmc.formats.registry import check, write
from dmcmc.generators import registry
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError
from dmcmc.mpi.compute_node import launched


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


def graph(arguments: Namespace) -> int:
    """Show the properties of a problem's graphs, and draw them."""
    from dmcmc.report.graph import check_picture, draw, facts_of, summary

    if arguments.output is not None:
        check_picture(arguments.output)
    problem, config = load(arguments.input, arguments)
    facts = facts_of(problem, config.budget.bytes)
    if arguments.output is not None:
        draw(problem, facts, arguments.output)
    emit(json.dumps(facts.plain(), indent=2) if arguments.json else summary(facts))
    return 0


def samplers(arguments: Namespace) -> int:
    """List the local solvers."""
    from dmcmc.samplers import registry

    auto = {"auto": "exact if the time and memory limits allow it, otherwise a sampler with a bound"}
    _list(auto | dict(sorted(registry.names().items())), arguments.json)
    return 0


def algorithms(arguments: Namespace) -> int:
    """List the algorithms."""
    from dmcmc.algorithms import registry

    ours = {registry.OWN: "the default: exact or sampled tables of agents with many variables, bounds, DPOP or ADPOP"}
    _list(ours | registry.described(), arguments.json)
    return 0


def info(arguments: Namespace) -> int:
    """Show the versions and the hardware that this installation uses."""
    from dmcmc.results.stored_result import machine, rank_machine

    if not launched(os.environ):
        _list(machine(), arguments.json)
        return 0
    from dmcmc.mpi.compute_node import binding_advice
    from dmcmc.mpi.world import connect

    world = connect()
    machines = world.gather(
        {"rank": world.rank}
        | rank_machine()
        | ({"bound": binding_advice(world.core_binding)} if world.core_binding else {})
    )
    if machines is not None:
        rows: dict[str, Any] = machine()
        if arguments.json:
            rows["ranks"] = machines
        else:
            rows |= {f"rank {data.pop('rank')}": ", ".join(f"{k} {v}" for k, v in data.items()) for data in machines}
        _list(rows, arguments.json)
    return 0


def _list(rows: Mapping[str, Any], as_json: bool) -> None:
    """Print names and values, as a JSON object or in two columns."""
    if as_json:
        emit(json.dumps(rows, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(Text(name, style="bold"), Text("-" if value is None else str(value)))
    emit(table)
