"""The Python interface to problems: read a problem file, or generate a problem."""

import os
from typing import Any, SupportsIndex

from dmcmc.formats import registry as formats
from dmcmc.generators import registry
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError


def load(
    path: str | os.PathLike[str],
    *,
    agents: int | None = None,
    split: str = "tree",
    format: str | None = None,
    evidence: str | os.PathLike[str] | None = None,
    distribution: str | os.PathLike[str] | None = None,
) -> Problem:
    """Read a problem file of any known format, compressed or not.

    Parameters
    ----------
    path : str or path
        The file. Its format is recognised from its content, or from its name.
    agents : int, optional
        Assign the variables to this number of agents. None: the agents of the file, or one agent.
    split : str
        How variables are assigned to agents: ``tree``, ``grow`` or ``blocks``
        (:mod:`dmcmc.inference.dpop.assign_variables`).
    format : str, optional
        The format of the file: ``native``, ``wcsp``, ``cfn``, ``uai``, ``bif``, ``xmlbif``, ``hugin``, ``xcsp`` or
        ``pydcop``.
    evidence : str or path, optional
        For belief networks: a file with observed values; ``FILE:2`` is its second sample.
    distribution : str or path, optional
        For pyDCOP problems: a file with the variables that each agent hosts.

    Returns
    -------
    Problem
        The problem.

    Raises
    ------
    DmcmcError
        If the file cannot be read; the message is one line with the place in the file.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"path: expected the path of a problem file, got {path!r}")
    if agents is not None and not isinstance(agents, SupportsIndex):
        raise ConfigError(f"agents: expected a whole number, got {agents!r}")
    problem = formats.load(path, format=format, evidence=evidence, distribution=distribution)
    if agents is None:
        return problem
    from dmcmc.inference.dpop import assign_variables as splitting

    return splitting.split(problem, agents, split)


def generate(family: str, **parameters: Any) -> Problem:
    """Generate a problem of a family.

    Parameters
    ----------
    family : str
        ``meeting-scheduling``, ``random``, ``random-network``, ``scale-free``, ``colouring`` or ``grid``.
    **parameters
        Parameters of the family (``dmcmc generate --help`` and README); all others have their defaults. The default
        ``seed`` is 0.

    Returns
    -------
    Problem
        The problem.

    Raises
    ------
    DmcmcError
        If the family or a parameter is unknown, or a value is not allowed; the message has the known names.

    Examples
    --------
    >>> generate("random", agents=2, variables_per_agent=3, seed=7).n_variables
    6
    """
    try:
        return registry.generate(family, {"seed": 0} | parameters)
    except DmcmcError as error:
        raise type(error)(f"generate {family}: {error}") from error
