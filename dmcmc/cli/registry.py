"""Commands by name. Each is imported when it is called, so that the other ones do not slow down the start."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

COMMANDS: Mapping[str, str] = {  # name: module in dmcmc.cli.commands, and its function
    "run": "run:run",
    "solve": "solve:solve",
    "init": "setup:init",
    "generate": "problem_files:generate",
    "convert": "problem_files:convert",
    "split": "problem_files:split",
    "graph": "graph:graph",
    "experiment": "experiment:experiment",
    "report": "report:report",
    "samplers": "lists:samplers",
    "algorithms": "lists:algorithms",
    "info": "lists:info",
    "warm-up": "setup:warm_up",
    "completion": "setup:completion",
    "mcp": "mcp:mcp",
}


def get(name: str) -> Callable[[Namespace], int]:
    """Return the function of a command: it takes the parsed arguments and returns this rank's exit code."""
    module, _, function = COMMANDS[name].partition(":")
    return cast(Callable[[Namespace], int], getattr(import_module(f"dmcmc.cli.commands.{module}"), function))
