"""The names of dmcmc's own improvers and search engines, as results, traces and summaries show them."""

# Improvers of single agents' tables; each runs on the agent's rank.
EXACT_ELIMINATION = "exact elimination"
FUNCTION_FILTERING = "function filtering"
SAMPLING = "sampling"
BOUND = "bound"
BRANCH = "branch and bound"  # over the boundary assignments (rows) of an agent
SEMIDEFINITE = "semidefinite"
# Improvers of the whole problem.
LOCAL_SEARCH = "local search"
RECOMBINATION = "recombination"
EXTERNAL_SEARCH = "external search"  # a search engine in the background; its gains carry the engine's own name:
TOULBAR2, CP_SAT, MAX_SAT, BRANCH_AND_BOUND = "toulbar2", "cp-sat", "max-sat", "branch-and-bound"
GPU_CHAINS = "gpu chains"  # in the background, with the GPU time that other work leaves
LAST_RUN = "last run"  # the run before in a session, whose bound is still known

ROUNDING = "roundings of the bound"  # name under which the kernels of roundings are declared
UNION_BOUND = "bound of the union"  # name under which the kernels of the union's bound are declared
