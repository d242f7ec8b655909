"""Count the bytes and table entries of the messages between the agents of a calendar.

    python -m benchmarks.calendars.disclosure [--people 5] [--meetings 3] [--days 1] [--seeds 3] [--output FILE]

Each person is an agent with a variable for each of its meetings (PEAV), and the tables are exact. A UTIL message is a
table over variables of other agents. ``own`` counts the agent's own utilities, which nobody else has at the start, and
``disclosed`` is an upper bound on how many of them others can reconstruct: the fields ``own_utilities`` and
``disclosed`` of the result. This is no claim of cryptographic privacy.
"""

import dmcmc
from benchmarks.calendars.team import team_calendar
from benchmarks.harness import Report, options
from dmcmc.calendars.file.problem import problem_of
from dmcmc.calendars.file.read import read_calendar
from dmcmc.files.text import SourceFile


def main() -> None:
    """Solve the calendars and print one line per agent."""
    parser = options(__file__, __doc__)
    for name, default in (("people", 5), ("meetings", 3), ("days", 1), ("seeds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    report = Report(__file__, given)
    for seed in range(1, given.seeds + 1):
        text = team_calendar(given.people, given.meetings, given.days, seed)
        calendar = read_calendar(SourceFile("team.yaml", text.encode()))
        result = dmcmc.solve(problem_of(calendar), presolve="none", device="cpu")
        report(f"seed {seed}: {result.status}, {sum(agent.msg_size for agent in result.agents)} bytes of messages")
        for agent in result.agents:
            util = agent.messages.get("UTIL")
            size, count = (0, 0) if util is None else (util.size, util.count)
            report(
                f"  {agent.name}: {count} UTIL messages of {size} bytes, disclosed {agent.disclosed},"
                f" own {agent.own_utilities}; {agent.variables} variables"
            )
    report.keep()


if __name__ == "__main__":
    main()
