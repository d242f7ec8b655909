"""Which temperatures suit a problem: chains over several ranges race, the better half goes on with twice the sweeps."""

from dataclasses import dataclass, field

from dmcmc.samplers.local_search.chains import Range

# First and last temperature in typical spreads of a conditional. The first suit problems whose factors are alike, the
# others those whose utilities have many magnitudes, or constraints written as large costs.
RANGES: tuple[Range, ...] = (
    (0.4, 0.1), (0.2, 0.02), (0.05, 0.005), (1.0, 0.01), (0.2, 0.002), (6.4, 0.05), (1.0, 0.1), (1.0, 0.001)
)  # fmt: skip
_FIRST, _LAST = 16, 1 << 14  # sweeps of a chain in the first heat of the first race; in the last of any
_GROWTH = 4  # of the first heat from race to race
_LEFT = 2  # ranges that go on to the end


@dataclass
class Race:
    """Ranges that are left, and how long the chains of the next heat are."""

    ranges: list[Range] = field(default_factory=lambda: list(RANGES))
    sweeps: int = _FIRST
    first: int = _FIRST

    def next(self, ranking: list[int]) -> None:
        """Go on to the next heat, or to a new race.

        Parameters
        ----------
        ranking
            The places of ``ranges``, best first.
        """
        self.sweeps *= 2
        self.ranges = [self.ranges[i] for i in sorted(ranking[: max(_LEFT, len(ranking) // 2)])]
        if self.sweeps > _LAST:
            self.first = self.sweeps = min(self.first * _GROWTH, _LAST // 4)
            self.ranges = list(RANGES)
