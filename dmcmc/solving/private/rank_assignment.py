"""The values of this rank's agents in a private run: kept in the checkpoint, and written next to the output file."""

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.files.write import replace_file
from dmcmc.formats.agent_files import AgentIndex, values_file
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import FileError
from dmcmc.solving.monitoring.saved_incumbent import SavedIncumbent


class RankAssignment:
    """Storage of the values of one rank's agents, which no other rank knows.

    Parameters
    ----------
    index
        Public data of all agents.
    mine
        Agents of this rank.
    problem
        The problem as this rank knows it, with names and labels of its own agents' variables.
    parts
        Problem of each agent of this rank.
    config
        Settings, with the output file and the checkpoint folder.
    """

    def __init__(
        self, index: AgentIndex, mine: Sequence[int], problem: Problem, parts: Mapping[int, Problem], config: Settings
    ) -> None:
        self._index, self._mine, self._problem = index, mine, problem
        self._output, folder = config.output, config.checkpoint
        self._saved: dict[int, SavedIncumbent] = {}
        if folder is not None:
            self._saved = {a: SavedIncumbent(folder, parts[a], f"incumbent-{a}.npz") for a in mine}
        self._writing, self._final = threading.Lock(), False

    def load(self) -> dict[int, int]:
        """Return the values of the agents' own variables that an earlier run saved."""
        values = dict[int, int]()
        for agent, file in self._saved.items():
            if (earlier := file.load()) is not None:
                own_variables, variables = (
                    set(self._index.variables_by_agent[agent]),
                    self._index.known_variables(agent),
                )
                values |= {v: x for v, x in zip(variables, earlier.tolist(), strict=True) if v in own_variables}
        return values

    def keep(self, values: Mapping[int, int]) -> None:
        """Save better values in the checkpoint, at most once per second, including values that neighbours share.

        A neighbour's value that this rank does not know is saved as 0: :meth:`load` reads the agents' own values only.
        """
        with self._writing:
            for agent, file in self._saved.items():
                file.save(np.array([values.get(v, 0) for v in self._index.known_variables(agent)], dtype=np.int64))

    def by_name(self, values: Mapping[int, int]) -> dict[int, dict[str, Label]]:
        """Return the values of this rank's agents by variable name."""
        problem = self._problem
        return {
            agent: {problem.variables[v]: problem.label(v, values[v]) for v in self._index.variables_by_agent[agent]}
            for agent in self._mine
        }

    def write(self, values: Mapping[int, int]) -> None:
        """Write each agent's values to a file if there is an output file; :meth:`leave` then writes nothing more.

        Raises
        ------
        FileError
            If a file cannot be written.
        """
        with self._writing:
            self._final = True
            self._write(values)

    def leave(self, values: Mapping[int, int]) -> None:
        """Write the values so far unless :meth:`write` was called; callable from any thread, and without an error."""
        with self._writing:
            if not self._final and values:
                with contextlib.suppress(FileError):
                    self._write(values)
            self._flush()

    def end(self) -> None:
        """Write unsaved values to the checkpoint."""
        with self._writing:
            self._flush()

    def _write(self, values: Mapping[int, int]) -> None:
        """Write one file per agent."""
        if self._output is None:
            return
        folder = f"{os.path.splitext(self._output)[0]}.agents"
        for agent, named_values in self.by_name(values).items():
            text = msgspec.json.encode({"agent": self._index.agents[agent], "assignment": named_values})
            replace_file(values_file(folder, agent), [text, "\n"])

    def _flush(self) -> None:
        """Write unsaved values of all agents to the checkpoint."""
        for file in self._saved.values():
            file.flush()
