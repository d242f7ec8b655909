"""Junction trees of incomplete cliques beside dense ones: entries, bytes, seconds of all messages, and ln Z.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.listed [--memory 4GiB] [--only TEXT] [--output FILE]

FOLDER holds instances/. ``cells``: entries of all cliques; ``rows``: those that are possible. Bytes are those of
factors and messages (dense; a clique is never written) and of rows, places and messages (listed). ``difference``: of
ln Z.
"""

import dmcmc
from benchmarks.harness import Columns, Report, instances, options, timed
from dmcmc.inference.marginals.tables import DenseTables, ListedTables
from dmcmc.inference.runtime.errors import ResourceError

FOLDERS = ("bayesnet", "uai14_PR", "uai14_MAP", "linkage")
TABLE = Columns(
    ("file", "<22"), ("cells", ">12,"), ("rows", ">12,"), ("dense MiB", ">10.2f"), ("listed", ">10.2f"),
    ("dense s", ">8.3f"), ("listed", ">8.3f"), ("difference", ">11.1e"),
)  # fmt: skip


def main() -> None:
    """Print and write the table."""
    given = options(__file__, __doc__, memory="4GiB", only=True).parse_args()
    say = Report(__file__, given)
    say(TABLE.head)
    for folder in FOLDERS:
        for file in sorted((instances("instances") / folder).iterdir()):
            if not file.name.endswith((".bif.gz", ".uai")) or given.only not in file.name:
                continue
            problem, trees, seconds = dmcmc.load(file), [], []
            try:
                for kind in ("dense", "incomplete"):
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
            row = [dense.cells, listed.cells, held, listed.rows.bytes / 2**20, *seconds, apart]
            say(TABLE.line(file.name, *row))
    say.keep()


if __name__ == "__main__":
    main()
