"""Compare junction trees of sparse cliques with dense ones: entries, bytes, seconds of all messages, and ln Z.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.sparse_junction_trees [--memory 4GiB] [--only TEXT]
        [--output FILE]

FOLDER holds instances/. ``cells``: entries of all cliques. ``rows``: entries that are possible. Bytes are those of
factors and messages (dense; a clique is never stored), or of rows, their positions and messages (sparse). ``GPU``:
seconds of the sparse passes on a GPU, if there is one. ``difference``: the largest difference of ln Z.
"""

from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import Columns, Report, instances, options, timed
from dmcmc.inference.junction_tree.message_kernels import DOWN, MARGINAL, SEPARATOR_MARGINAL, UP
from dmcmc.inference.marginals.dense_tables import DenseTreeTables
from dmcmc.inference.marginals.sparse_tables import SparseTreeTables
from dmcmc.inference.runtime.device import gpu_problem, shared_device
from dmcmc.inference.runtime.errors import ResourceError

MAX_CELLS = 20_000_000  # cells
FOLDERS = ("bayesnet", "uai14_PR", "uai14_MAP", "linkage")
TABLE = Columns(
    ("file", "<22"), ("cells", ">12,"), ("rows", ">12,"), ("dense MiB", ">10.2f"), ("sparse", ">10.2f"),
    ("dense s", ">8.3f"), ("sparse", ">8.3f"), ("GPU", ">8.4f"), ("difference", ">11.1e"),
)  # fmt: skip


def gpu_seconds(sparse: SparseTreeTables) -> float:
    """Move the passes of a tree to the GPU; return the seconds of all of them."""
    from dmcmc.inference.junction_tree.cuda.sparse_passes import CudaSparsePasses

    sparse.passes = CudaSparsePasses(sparse.rows, shared_device(), shared_device().limit)
    cliques = np.arange(len(sparse.tree.scopes))

    def all_passes() -> Any:
        for what, order in ((UP, cliques), (DOWN, cliques[::-1]), (SEPARATOR_MARGINAL, cliques), (MARGINAL, cliques)):
            sparse.passes.run(what, order)

    return timed(all_passes, 3)[1].least


def main() -> None:
    """Print and write the table."""
    given = options(__file__, __doc__, memory="4GiB", only=True).parse_args()
    report = Report(__file__, given)
    report(TABLE.head)
    for folder in FOLDERS:
        for file in sorted((instances("instances") / folder).iterdir()):
            if not file.name.endswith((".bif.gz", ".uai")) or given.only not in file.name:
                continue
            problem, trees, seconds = dmcmc.load(file), list[dmcmc.JunctionTree](), list[float]()
            try:
                for kind in ("dense", "incomplete"):
                    if trees and trees[0].cells > MAX_CELLS:
                        raise ResourceError("skipped: too many cells to compare")
                    tree = dmcmc.JunctionTree(problem, memory=given.memory, tables=kind, device="cpu")
                    tree.propagate()
                    tree.forget()
                    seconds.append(timed(tree.propagate, 1, 0)[1].least)
                    trees.append(tree)
            except ResourceError as error:
                report(f"{file.name:<22} {error}"[:150])
                continue
            dense, sparse = (tree._tables for tree in trees)
            assert isinstance(dense, DenseTreeTables) and isinstance(sparse, SparseTreeTables)
            dense_mib, difference = dense._arena.nbytes / 2**20, abs(trees[0].total() - trees[1].total())
            on_gpu = None
            if gpu_problem() is None:
                on_gpu = gpu_seconds(sparse)
                trees[1].forget()
                difference = max(difference, abs(trees[0].total() - trees[1].total()))
            row = [dense.cells, sparse.cells, dense_mib, sparse.rows.bytes / 2**20, *seconds, on_gpu, difference]
            report(TABLE.line(file.name, *row))
    report.keep()


if __name__ == "__main__":
    main()
