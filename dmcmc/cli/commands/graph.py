"""``dmcmc graph FILE``: show and draw the graphs of a problem."""

import json
from argparse import Namespace

from dmcmc.cli.inputs import load
from dmcmc.cli.terminal import emit
from dmcmc.report.graph import facts_of
from dmcmc.report.graph_summary import summary


def graph(arguments: Namespace) -> int:
    """Show the properties of a problem's graphs, and draw them."""
    if arguments.output is not None:
        from dmcmc.report.drawing import check_picture

        check_picture(arguments.output)
    problem, config = load(arguments.input, arguments)
    facts = facts_of(problem, config.budget.bytes)
    if arguments.output is not None:
        from dmcmc.report.drawing import draw

        draw(problem, facts, arguments.output)
    emit(json.dumps(facts.plain(), indent=2) if arguments.json else summary(facts))
    return 0
