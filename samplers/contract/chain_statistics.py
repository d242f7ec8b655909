"""How well the chains of a sampler mix: distinct states, autocorrelation time and effective sample size.

At a low temperature a chain soon stays at one state, and further trials are repetitions: they add nothing to the sample
size that Property 1 of the DMCMC paper counts. Some chains of an agent are therefore run again and recorded. The
integrated autocorrelation time is that of the utility, with the automatic window of A. Sokal, *Monte Carlo methods in
statistical mechanics* (1997).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_WINDOW_FACTOR = 5.0  # autocorrelations are summed up to the first lag of at least 5 times the autocorrelation time


class ChainStatistics(NamedTuple):
    """Statistics of some chains of one agent.

    Attributes
    ----------
    chains : int
        Number of chains that were recorded.
    samples : int
        Trials of each of them.
    distinct_states : float
        Mean number of distinct states that a chain visits.
    autocorrelation_time : float
        Mean integrated autocorrelation time of the utility over the second half of a chain, in trials.
    effective_samples : float
        Mean effective sample size of a row, all its runs together; see :func:`statistics_of`.
    frozen : float
        Share of the chains that visit a single state in their second half.
    """

    chains: int
    samples: int
    distinct_states: float
    autocorrelation_time: float
    effective_samples: float
    frozen: float


def autocorrelation_time(series: NDArray[np.float64]) -> float:
    """Return the integrated autocorrelation time τ = 1 + 2 Σ r(t) of a series, in steps.

    r(t) is the autocorrelation at lag t. The sum ends at the first lag M ≥ 5 τ(M), or at the end of the series. A
    constant series has its own length: it is worth one sample. The result is at least 1.

    Parameters
    ----------
    series : (n,) float64
        A stationary series.

    Examples
    --------
    >>> autocorrelation_time(np.zeros(50)), autocorrelation_time(np.tile([0.0, 1.0], 50))
    (50.0, 1.0)
    """
    n, centred = series.size, series - series.mean()
    variance = float(centred @ centred)
    if n < 2 or variance == 0:
        return float(n)
    transform = np.fft.rfft(centred, 2 * n)
    correlation = np.fft.irfft(transform * np.conj(transform), 2 * n)[:n] / variance
    times = 2 * np.cumsum(correlation) - 1
    ended = np.flatnonzero(np.arange(n) >= _WINDOW_FACTOR * times)
    return float(min(max(times[ended[0] if ended.size else n - 1], 1.0), n))


def statistics_of(
    utilities: Sequence[NDArray[np.int64]], states: Sequence[NDArray[np.int32]], runs: int
) -> ChainStatistics:
    """Return the statistics of recorded chains.

    The effective sample size of a chain is its number of trials over the autocorrelation time, and at most the number
    of distinct states that it visits. That of a row is the mean over the chains times the number of its runs.

    Parameters
    ----------
    utilities : sequence of (trials,) int64
        Utility after each trial, for each chain.
    states : sequence of (trials, hidden) int32
        Hidden values after each trial, for each chain.
    runs : int
        Chains per row.
    """
    samples, times, distinct, frozen = utilities[0].size, list[float](), list[int](), list[bool]()
    for utility, chain in zip(utilities, states, strict=True):
        late = slice(samples // 2, None)
        frozen.append(len(np.unique(chain[late], axis=0)) == 1)
        times.append(float(samples) if frozen[-1] else autocorrelation_time(utility[late].astype(np.float64)))
        distinct.append(len(np.unique(chain, axis=0)))
    effective = np.minimum(samples / np.array(times), distinct)
    return ChainStatistics(
        chains=len(times),
        samples=samples,
        distinct_states=float(np.mean(distinct)),
        autocorrelation_time=float(np.mean(times)),
        effective_samples=float(runs * effective.mean()),
        frozen=float(np.mean(frozen)),
    )
