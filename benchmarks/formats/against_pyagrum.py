"""Compare the marginals of belief networks as dmcmc and pyAgrum read them, for files of several programs.

    python -m benchmarks.formats.against_pyagrum [--largest 500] [--only TEXT]

The files are every .bif of the instances and the files of realworld/formats (with DMCMC_INSTANCES), and networks that
pyAgrum and pgmpy write in each format that they have: random ones, those of the instances, and examples of pgmpy up to
a number of variables. Both programs compute all marginals without evidence. "single" compares after rounding to the
single precision of pyAgrum's readers, "double" compares what dmcmc reads. Needs pyagrum and pgmpy.
"""

import gzip
import os
import tempfile
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from itertools import chain
from pathlib import Path

from benchmarks.formats.pyagrum_networks import SINGLE, ours, theirs
from benchmarks.harness import Columns, Report, options

TABLE = Columns(("file", "<30"), ("written by", "<10"), ("variables", ">9"), ("single", ">9.1e"), ("double", ">9.1e"))
LIMIT = 1e-9  # largest difference of marginals that counts as equal
RANDOM = 12  # random networks
EXAMPLES = ("asia", "cancer", "earthquake", "sachs", "survey", "child", "insurance", "alarm", "win95pts", "hailfinder")


def given_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of DMCMC_INSTANCES, uncompressed into a folder."""
    root = Path(os.environ.get("DMCMC_INSTANCES", "/nonexistent"))
    for packed in sorted((root / "instances").rglob("*.bif.gz")):
        path = folder / packed.name.removesuffix(".gz")
        path.write_bytes(gzip.decompress(packed.read_bytes()))
        yield "instances", path
    for name, suffix in (("small.net", ".net"), ("small.xmlbif", ".bifxml"), ("labels-with-blanks.bif", ".bif")):
        if (source := root / "realworld" / "formats" / name).is_file():
            path = folder / source.with_suffix(suffix).name
            text = source.read_text()
            if suffix == ".bif":  # pyAgrum takes no blanks in names of values
                text = text.replace("north east", "north_east").replace("north west", "north_west")
            path.write_text(text)
            yield "realworld", path


def written_by_pyagrum(folder: Path, sources: list[Path]) -> Iterator[tuple[str, Path]]:
    """Yield random networks, and networks of files, in each format in which pyAgrum writes them."""
    import pyagrum

    networks = {}
    for seed in range(RANDOM):
        pyagrum.initRandom(seed + 1)
        networks[f"random{seed}"] = pyagrum.randomBN(n=12, ratio_arc=1.5, domain_size=4)
    networks |= {path.stem: pyagrum.loadBN(str(path)) for path in sources}
    for name, network in networks.items():
        for suffix in ("bif", "bifxml", "net", "uai"):
            path = folder / f"{name}.{suffix}"
            try:
                pyagrum.saveBN(network, str(path))
            except pyagrum.FatalError:  # labels that pyAgrum does not write in this format
                continue
            yield "pyAgrum", path


def written_by_pgmpy(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield pgmpy's example networks in each format that pgmpy writes and pyAgrum reads."""
    warnings.filterwarnings("ignore")
    from pgmpy.readwrite import BIFWriter, NETWriter, XMLBIFWriter
    from pgmpy.utils import get_example_model

    for name in EXAMPLES:
        model = get_example_model(name)
        for writer, method, suffix in (
            (BIFWriter, "write_bif", "bif"),
            (XMLBIFWriter, "write_xmlbif", "bifxml"),
            (NETWriter, "write_net", "net"),
        ):
            path = folder / f"{name}.{suffix}"
            getattr(writer(model), method)(str(path))
            yield "pgmpy", path


def main() -> None:
    """Compare all files and print one line for each."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--largest", type=int, default=500, help="variables of the largest network to write again")
    given = parser.parse_args()
    report = Report(__file__, given, pyagrum=version("pyagrum"), pgmpy=version("pgmpy"))
    report(TABLE.head)
    counts = {"equal": 0, "different": 0, "not read by pyAgrum": 0}
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name, part) for part in ("given", "pyagrum", "pgmpy")]
        for folder in folders:
            folder.mkdir()
        files = list(given_files(folders[0]))
        small = [p for who, p in files if who == "instances" and p.read_bytes().count(b"\nvariable") <= given.largest]
        for who, path in chain(files, written_by_pyagrum(folders[1], small), written_by_pgmpy(folders[2])):
            if given.only not in path.name:
                continue
            try:
                expected = theirs(path, path.suffix == ".net")
            except Exception as error:  # pyAgrum's errors have no common class
                report(f"{path.name:30} {who:10} pyAgrum does not read it: {' '.join(str(error).split())[:60]}")
                counts["not read by pyAgrum"] += 1
                continue
            single = ours(path, path.suffix in SINGLE).difference(expected)
            double = ours(path, False).difference(expected)
            report(TABLE.line(path.name, who, len(expected.names), single, double))
            counts["equal" if single <= LIMIT else "different"] += 1
    report(", ".join(f"{count} {what}" for what, count in counts.items()))
    report.keep()


if __name__ == "__main__":
    main()
