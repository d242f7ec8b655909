"""A claim of a paper, what was measured here, and the verdict."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from benchmarks.papers.evidence import Evidence


class Verdict(StrEnum):
    """How a claim stands after the experiments here."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"
    NOT_REPEATED = "not repeated"
    NOT_COMPARABLE = "not comparable"


class Claim(NamedTuple):
    """A claim or a number of a paper.

    Attributes
    ----------
    where : str
        Section, table or figure of the paper.
    text : str
        The claim.
    published : str
        The number of the paper.
    here : callable
        Returns what was measured here, as text.
    verdict : Verdict
        How the claim stands.
    why : str
        The reason for the verdict, if ``here`` does not show it.
    confirms : callable or None
        Returns whether the runs confirm the claim; None if runs cannot decide. A verdict of ``holds`` needs
        True, one of ``does not hold`` needs False.
    """

    where: str
    text: str
    published: str
    here: Callable[[Evidence], str]
    verdict: Verdict
    why: str = ""
    confirms: Callable[[Evidence], bool] | None = None

    def row(self, evidence: Evidence) -> list[str]:
        """Return the cells of the claim in the table."""
        verdict = f"**{self.verdict}**" + (f": {self.why}" if self.why else "")
        return [self.where, self.text, self.published, self.here(evidence), verdict]


def stated(text: str) -> Callable[[Evidence], str]:
    """Return the column ``here`` of a claim that runs do not measure."""
    return lambda evidence: text
