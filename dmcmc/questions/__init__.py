"""Answer questions about a problem by several solves: alternatives, conflicts, max-marginals, sums."""
