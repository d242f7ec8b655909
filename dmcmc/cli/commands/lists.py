"""Commands that list what is installed: ``dmcmc samplers``, ``algorithms`` and ``info``."""

import json
import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from dmcmc.cli.terminal import emit
from dmcmc.mpi.launcher import launched


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
    _list(ours | registry.names(), arguments.json)
    return 0


def info(arguments: Namespace) -> int:
    """Show the versions and the hardware that this installation uses."""
    from dmcmc.results.provenance import machine, rank_machine

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
