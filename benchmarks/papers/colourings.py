"""Write the colourings of GpuBE's Table 7 that are a held graph with another number of colours.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.papers.colourings

Reads FOLDER/instances/coloring_wcsp, and writes the missing ones to FOLDER/instances/coloring_made, for
``configs/papers/gpube-tables6-10.yaml``. Two neighbours of one colour cost 1, as in the files that are held.
"""

from benchmarks.harness import instances, options

COLOURS = {"GEOM30a_4": (3, 5, 6), "GEOM40_2": (3, 4, 5), "le450_5a_3": (2, 4, 5), "myciel5g_4": (3, 5, 6),
           "queen5_5_3": (4, 5)}  # fmt: skip


def with_colours(text: str, name: str, colours: int) -> str:
    """Return a colouring in the format WCSP with another name and number of colours."""
    header, _, *lines = text.splitlines()
    n, top = (header.split()[i] for i in (1, 4))
    edges = [line.split()[1:3] for line in lines if line.split()[0] == "2" and len(line.split()) == 5]
    equal = "".join(f"{c} {c} 1\n" for c in range(colours))
    factors = "".join(f"2 {u} {v} 0 {colours}\n{equal}" for u, v in edges)
    return f"{name} {n} {colours} {len(edges)} {top}\n{' '.join([str(colours)] * int(n))}\n{factors}"


def main() -> None:
    """Write all files."""
    options(__file__, __doc__ or "").parse_args()
    folder = instances("instances")
    (folder / "coloring_made").mkdir(exist_ok=True)
    for held, numbers in COLOURS.items():
        text = (folder / "coloring_wcsp" / f"{held}.wcsp").read_text(encoding="utf-8")
        for colours in numbers:
            name = f"{held.rpartition('_')[0]}_{colours}"
            (folder / "coloring_made" / f"{name}.wcsp").write_text(with_colours(text, name, colours), encoding="utf-8")


if __name__ == "__main__":
    main()
