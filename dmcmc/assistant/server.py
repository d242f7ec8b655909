"""Serve the tools of :mod:`dmcmc.assistant.calendar_tools` by the Model Context Protocol (the official Python SDK)."""

import threading
import warnings
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from dmcmc.inference.runtime.errors import DmcmcError, FileWarning, Unavailable
from dmcmc.results.version import __version__

if TYPE_CHECKING:
    from dmcmc.assistant.calendar_tools import CalendarTools

P = ParamSpec("P")
R = TypeVar("R")

_INSTRUCTIONS = """Plan meetings. A calendar is a YAML text, for example:

calendar: Two of us
first_day: 2027-03-01
days: 2
hours: 09:00-12:00
slot: 30
timezone: Europe/Berlin
everyone: {max_per_day: 4, lunch: 12:00-13:00}
people:
  Ann: {busy: [Mon 09:00-10:00, {ics: ann.ics}], prefer: {mornings: 2}}
  Bob: {prefer: {not Monday: 3}, buffer: 15}
rooms: {Blue: {capacity: 6}, Table: {count: 3}}
meetings:
  Review: {people: [Ann, Bob], slots: 2}
  Coffee: {people: [Ann], optional: {Bob: 2}, weight: 1, when: [after 11:00], after: Review}

A meeting without a weight must be held. Rules for times combine weeks, days and hours: mornings, afternoons, Monday,
Mon-Wed, 2027-03-01, week 2, 09:00-11:30, before 10:00, after 15:00, and "not" in front. Files that a calendar names
(ics, poll) are in the folder of the server. Times in answers are local times of the calendar."""


def make_server(tools: "CalendarTools") -> Any:
    """Return a server (``mcp.server.MCPServer``) of tools for planning calendars.

    Raises
    ------
    Unavailable
        If the SDK is not installed.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise Unavailable("dmcmc mcp needs the Model Context Protocol's SDK; pip install 'dmcmc[mcp]'") from None
    lock = threading.Lock()
    server = MCPServer(name="dmcmc", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING")

    def guarded(method: Callable[P, R]) -> Callable[P, R]:
        """Return a method that works on one call at a time, whose errors are one line, and that answers warnings."""

        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with lock, warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", FileWarning)
                try:
                    answer: Any = method(*args, **kwargs)
                except DmcmcError as error:
                    raise ToolError(" ".join(str(error).split())) from None
            found = [str(x.message) for x in caught if issubclass(x.category, FileWarning)]
            for part in answer if isinstance(answer, list) else [answer]:
                part.update({"warnings": found} if found else {})
            return cast(R, answer)

        return call

    for method in (
        tools.propose_schedule,
        tools.check_schedule,
        tools.explain_conflict,
        tools.plan_anew,
        tools.alternatives,
    ):
        description = (method.__doc__ or "").strip()
        server.tool(name=method.__name__, description=description)(guarded(method))
    return server


def serve(tools: "CalendarTools") -> None:
    """Serve tools over standard input and output until the input ends; see :func:`make_server`."""
    make_server(tools).run("stdio")
