"""Local search over complete assignments: a greedy start, 1-opt moves, annealed Gibbs chains and block moves."""
