"""Junction trees of incomplete cliques beside dense ones: entries, bytes, seconds of all messages, and ln Z.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.listed [--memory 4GiB] [--only TEXT] [--output FILE]

FOLDER holds instances/. ``cells``: entries of all cliques; ``rows``: those that are possible. Bytes are those of
factors and messages (dense; a clique is never written) and of rows, places and messages (listed). ``GPU``: seconds of
the listed ones there, if there is one. ``difference``: of ln Z, the largest.
"""

from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import Columns, Report, instances, options, timed
from dmcmc.inference.junction_tree.message_kernels import DOWN, SEPARATOR, SHOW, UP
from dmcmc.inference.marginals.tables import DenseTables, ListedTables
from dmcmc.inference.runtime.device import gpu_problem, shared_device
from dmcmc.inference.runtime.errors import ResourceError

MOST = 20_000_000  # cells
FOLDERS = ("bayesnet", "uai14_PR", "uai14_MAP", "linkage")
TABLE = Columns(
    ("file", "<22"), ("cells", ">12,"), ("rows", ">12,"), ("dense MiB", ">10.2f"), ("listed", ">10.2f"),
    ("dense s", ">8.3f"), ("listed", ">8.3f"), ("GPU", ">8.4f"), ("difference", ">11.1e"),
)  # fmt: skip


def there(listed: ListedTables) -> float:
    """Move a tree's passes to the GPU; return the seconds of all of them."""
    from dmcmc.inference.junction_tree.cuda.sparse_passes import CudaRowPasses

    listed.passes = CudaRowPasses(listed.rows, shared_device(), shared_device().limit)
    cliques = np.arange(len(listed.tree.scopes))

    def everything() -> Any:
        for what, order in ((UP, cliques), (DOWN, cliques[::-1]), (SEPARATOR, cliques), (SHOW, cliques)):
            listed.passes.run(what, order)

    return timed(everything, 3)[1].least


def main() -> None:
    """Print and write the table."""
    given = options(__file__, __doc__, memory="4GiB", only=True).parse_args()
    say = Report(__file__, given)
    say(TABLE.head)
    for folder in FOLDERS:
        for file in sorted((instances("instances") / folder).iterdir()):
            if not file.name.endswith((".bif.gz", ".uai")) or given.only not in file.name:
                continue
            problem, trees, seconds = dmcmc.load(file), list[dmcmc.JunctionTree](), list[float]()
            try:
                for kind in ("dense", "incomplete"):
                    if trees and trees[0].cells > MOST:
                        raise ResourceError("left out: too many cells to be listed")
                    tree = dmcmc.JunctionTree(problem, memory=given.memory, tables=kind, device="cpu")
                    tree.propagate()
                    tree.forget()
                    seconds.append(timed(tree.propagate, 1, 0)[1].least)
                    trees.append(tree)
            except ResourceError as error:
                say(f"{file.name:<22} {error}"[:150])
                continue
            dense, listed = (tree._tables for tree in trees)
            assert isinstance(dense, DenseTables) and isinstance(listed, ListedTables)
            held, apart = dense._arena.nbytes / 2**20, abs(trees[0].total() - trees[1].total())
            on_gpu = None
            if gpu_problem() is None:
                on_gpu = there(listed)
                trees[1].forget()
                apart = max(apart, abs(trees[0].total() - trees[1].total()))
            row = [dense.cells, listed.cells, held, listed.rows.bytes / 2**20, *seconds, on_gpu, apart]
            say(TABLE.line(file.name, *row))
    say.keep()


if __name__ == "__main__":
    main()
