"""This rank's agents' values in a private run: kept in the checkpoint as they get better, written beside the output."""

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.files.write import replace_file
from dmcmc.formats.agent_files import Index
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import FileError
from dmcmc.run.monitoring.saved_incumbent import KeptIncumbent


class OwnParts:
    """Where the values of one rank's agents go, which no other rank knows.

    Parameters
    ----------
    mine
        This rank's agents.
    problem
        As this rank knows it: names and labels are there for its own agents' variables.
    parts
        Its agents' own parts, by agent.
    """

    def __init__(
        self, index: Index, mine: Sequence[int], problem: Problem, parts: Mapping[int, Problem], config: Settings
    ) -> None:
        self._index, self._mine, self._problem = index, mine, problem
        self._output, folder = config.output, config.checkpoint
        self._kept: dict[int, KeptIncumbent] = {}
        if folder is not None:
            self._kept = {a: KeptIncumbent(folder, parts[a], f"incumbent-{a}.npz") for a in mine}
        self._writing, self._final = threading.Lock(), False

    def found(self) -> dict[int, int]:
        """Return the values of agents' own variables that an earlier run has kept."""
        values = dict[int, int]()
        for agent, kept in self._kept.items():
            if (before := kept.find()) is not None:
                own, known = set(self._index.own[agent]), self._index.variables(agent)
                values |= {v: x for v, x in zip(known, before.tolist(), strict=True) if v in own}
        return values

    def keep(self, values: Mapping[int, int]) -> None:
        """Keep better values in the checkpoint, now or a second after the last ones; also those that agents share."""
        with self._writing:
            for agent, kept in self._kept.items():
                kept.keep(np.array([values[v] for v in self._index.variables(agent)], dtype=np.int64))

    def named(self, values: Mapping[int, int]) -> dict[int, dict[str, Label]]:
        """Return the values of this rank's agents by name."""
        problem = self._problem
        return {
            agent: {problem.variables[v]: problem.label(v, values[v]) for v in self._index.own[agent]}
            for agent in self._mine
        }

    def write(self, values: Mapping[int, int]) -> None:
        """Write each agent's values to a file of its own, if there is an output; nothing is written after that.

        Raises
        ------
        FileError
            If that is not possible.
        """
        with self._writing:
            self._final = True
            self._write(values)

    def leave(self, values: Mapping[int, int]) -> None:
        """Leave what there is so far, if :meth:`write` has not been called: from any thread, without an error."""
        with self._writing:
            if not self._final and values:
                with contextlib.suppress(FileError):
                    self._write(values)
            self._flush()

    def end(self) -> None:
        """Write what still waits to be kept in the checkpoint."""
        with self._writing:
            self._flush()

    def _write(self, values: Mapping[int, int]) -> None:
        if self._output is None:
            return
        folder = f"{os.path.splitext(self._output)[0]}.agents"
        for agent, own in self.named(values).items():
            text = msgspec.json.encode({"agent": self._index.agents[agent], "assignment": own})
            replace_file(os.path.join(folder, f"agent-{agent}.json"), [text, "\n"])

    def _flush(self) -> None:
        for kept in self._kept.values():
            kept.flush()
