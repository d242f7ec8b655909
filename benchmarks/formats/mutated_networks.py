"""Damage small belief networks and compare how dmcmc and pyAgrum read what dmcmc still accepts.

    python -m benchmarks.formats.mutated_networks [--count 500] [--seed 0] [--only FORMAT]

Each file is a small network that pyAgrum wrote or could have written, with one or two changes: a byte or a token
replaced, inserted, deleted, swapped or repeated, or a number replaced. Files that dmcmc refuses are left out; of COUNT
files per format that it accepts, those are printed that pyAgrum reads as another network: other names, labels or
marginals. Needs pyagrum.
"""

import random
import re
import tempfile
from importlib.metadata import version
from multiprocessing import TimeoutError, get_context
from pathlib import Path

import numpy as np

from benchmarks.formats.pyagrum_networks import SINGLE, Network, ours, theirs
from benchmarks.harness import Report, options
from dmcmc.inference.runtime.errors import DmcmcError

TIMEOUT = 5.0  # seconds for pyAgrum to read a file
LIMIT = 1e-9  # largest difference of marginals that counts as equal
SHOWN = 3000  # characters of a printed file

SEEDS = {
    ".bif": (
        'network "small" {\n  property author = "me";\n}\n// two causes\nvariable a {\n  type discrete[3] {x, y, z};\n'
        "}\nvariable b {\n  type discrete[2] { yes, no };\n  property position = (1, 2);\n}\n"
        "variable c {\n  type discrete[2] {0, 1};\n}\nprobability (a) {\n  table 0.2 0.3 0.5;\n}\n"
        "probability (b | a) {\n  (x) 0.1, 0.9;\n  (y) 0.25, 0.75;\n  (z) 0.5, 0.5;\n}\n"
        "probability (c | a, b) {\n  default 0.5 0.5;\n  (x, yes) 0.7 0.3;\n  (y, no) 1.0 0.0; /* sure */\n}\n",
        "network u {\n}\nvariable p { type discrete [ 2 ] { t, f }; }\n"
        "variable q { type discrete [ 3 ] { 1, 2, 3 }; }\n"
        "probability ( p | q ) { table 0.1, 0.2, 0.3, 0.9, 0.8, 0.7; }\n"
        "probability ( q ) { table 2e-1, 0.3, 0.5; }\n",
    ),
    ".bifxml": (
        '<?xml version="1.0" ?>\n<BIF VERSION="0.3">\n<NETWORK>\n<NAME>small</NAME>\n<PROPERTY>author me</PROPERTY>\n'
        '<!-- Variables -->\n<VARIABLE TYPE="nature">\n\t<NAME>a</NAME>\n\t<OUTCOME>x</OUTCOME>\n\t<OUTCOME>y</OUTCOME>'
        '\n\t<OUTCOME>z</OUTCOME>\n</VARIABLE>\n<VARIABLE TYPE="nature">\n\t<NAME>b</NAME>\n\t<OUTCOME>yes</OUTCOME>\n'
        '\t<OUTCOME>no</OUTCOME>\n</VARIABLE>\n<VARIABLE TYPE="nature">\n\t<NAME>c</NAME>\n\t<OUTCOME>0</OUTCOME>\n'
        "\t<OUTCOME>1</OUTCOME>\n</VARIABLE>\n<DEFINITION>\n\t<FOR>a</FOR>\n\t<TABLE>0.2 0.3 0.5</TABLE>\n"
        "</DEFINITION>\n<DEFINITION>\n\t<FOR>b</FOR>\n\t<GIVEN>a</GIVEN>\n"
        "\t<TABLE>0.1 0.9\n0.25 0.75\n0.5 0.5</TABLE>\n"
        "</DEFINITION>\n<DEFINITION>\n\t<FOR>c</FOR>\n\t<GIVEN>a</GIVEN>\n\t<GIVEN>b</GIVEN>\n"
        "\t<TABLE>0.7 0.3 0.5 0.5\n"
        "\t\t0.4 0.6 1.0 0.0\n\t\t1e-1 0.9 0.2 0.8</TABLE>\n</DEFINITION>\n</NETWORK>\n</BIF>\n",
    ),
    ".net": (
        'net {\n  name = small;\n  node_size = (50 50);\n}\n\nnode a {\n   states = (x y z );\n   label = "a";\n}\n'
        'node b {\n   states = ("yes" "no");\n   ID = "b";\n}\nnode c {\n   states = (0 1 );\n}\n'
        "potential (a) {\n   data = ( 0.2 0.3 0.5);\n}\npotential ( b | a ) {\n   data = (( 0.1 0.9)  % x\n"
        "   ( 0.25 0.75)\n   ( 5 5)); % z\n}\npotential ( c | a b ) {\n   data = ((( 0.7 0.3) ( 0.5 0.5))\n"
        "   (( 0.4 0.6) ( 1.0 0.0))\n   (( 1e-1 0.9) ( 2 8)));\n   experience = (( 1 2) (3 4) (5 6));\n}\n",
    ),
    ".uai": (
        "BAYES\n3\n3 2 2\n3\n1 0   # a\n2 0 1   # b\n3 0 1 2\n\n3\n 0.2 0.3 0.5\n\n6\n 0.1 0.9\n 0.25 0.75\n 0.5 0.5\n"
        "\n12\n 0.7 0.3 0.5 0.5\n 0.4 0.6 1.0 0.0\n 1e-1 0.9 0.2 0.8\n",
    ),
}
TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[^\s\w]|\s+")
NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "0.125",
    "0.0",
    "1.0",
    "1e-3",
    "5e2",
    "0.1.2",
    "-0.5",
    "+0.5",
    ".5",
    "5.",
    "007",
    "1e",
    "12",
]
CHARACTERS = "0123456789 \n{}[]()<>;,|\"'%/*=.-+_eabxyz#&"


def mutate(rng: random.Random, text: str) -> str:
    """Return a text with one or two random changes."""
    for _ in range(rng.choice((1, 1, 2))):
        text = _changed(rng, text) or " "
    return text


def _changed(rng: random.Random, text: str) -> str:
    """Return a text with one random change."""
    i, kind = rng.randrange(len(text)), rng.randrange(9)
    if kind == 0:
        return text[:i] + rng.choice(CHARACTERS) + text[i + 1 :]
    if kind == 1:
        return text[:i] + rng.choice(CHARACTERS) + text[i:]
    if kind == 2:
        return text[:i] + text[i + rng.randrange(1, 6) :]
    if kind == 3:
        j = min(len(text), i + rng.randrange(1, 30))
        return text[:j] + text[i:j] + text[j:]
    tokens = TOKEN.findall(text)
    words = [t for t, token in enumerate(tokens) if not token.isspace()]
    a, b = rng.choice(words), rng.choice(words)
    if kind == 4:
        tokens[a], tokens[b] = tokens[b], tokens[a]
    elif kind == 5:
        tokens[a] = tokens[b]
    elif kind == 6:
        tokens[a] = ""
    elif kind == 7:
        numbers = [t for t in words if tokens[t][0].isdigit()]
        tokens[rng.choice(numbers)] = rng.choice(NUMBERS)
    else:
        lines = text.split("\n")
        a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
        return "\n".join(lines)
    return "".join(tokens)


class PyAgrumProcess:
    """Read files with pyAgrum in another process, which is replaced if it does not answer: some files stop it.

    Attributes
    ----------
    pool : Pool
        A pool of one process.
    """

    def __init__(self) -> None:
        self.pool = get_context("fork").Pool(1)

    def read(self, path: Path) -> Network | None:
        """Return the network of a file, or None if pyAgrum refuses it or does not answer."""
        try:
            return self.pool.apply_async(_network_or_none, (path,)).get(TIMEOUT)
        except TimeoutError:
            self.close()
            self.pool = get_context("fork").Pool(1)
            return None

    def close(self) -> None:
        """End the process."""
        self.pool.terminate()
        self.pool.join()


def _network_or_none(path: Path) -> Network | None:
    """Return what pyAgrum reads; None if it refuses the file."""
    try:
        with np.errstate(all="ignore"):
            return theirs(path, path.suffix == ".net")
    except Exception:  # pyAgrum's errors have no common class
        return None


def main() -> None:
    """Compare readings of damaged files, format by format."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--count", type=int, default=500, help="files per format that dmcmc accepts")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    report = Report(__file__, given, pyagrum=version("pyagrum"))
    reader = PyAgrumProcess()
    with tempfile.TemporaryDirectory() as folder:
        for suffix in SEEDS:
            if given.only in suffix:
                rng = random.Random(f"{suffix} {given.seed}")
                compare(report, reader, Path(folder, f"n{suffix}"), given.count, rng)
    reader.close()
    report.keep()


def compare(report: Report, reader: PyAgrumProcess, path: Path, count: int, rng: random.Random) -> None:
    """Compare ``count`` accepted files of one format and print the differences and the totals."""
    totals = dict.fromkeys(("mutations", "accepted", "equal", "refused by pyAgrum", "different"), 0)
    while totals["accepted"] < count:
        text = mutate(rng, rng.choice(SEEDS[path.suffix]))
        path.write_text(text)
        totals["mutations"] += 1
        try:
            found = ours(path, path.suffix in SINGLE)
        except DmcmcError:
            continue
        totals["accepted"] += 1
        expected = reader.read(path)
        if expected is None:
            totals["refused by pyAgrum"] += 1
            continue
        if found.difference(expected) <= LIMIT and (path.suffix == ".uai" or found.names == expected.names):
            totals["equal"] += 1
        else:
            totals["different"] += 1
            report(f"--- {path.suffix}, mutation {totals['mutations']}: differs by {found.difference(expected):.2e}")
            report(text[:SHOWN])
            report(f"dmcmc:   {found}\npyAgrum: {expected}")
    report(f"{path.suffix}: " + ", ".join(f"{number} {what}" for what, number in totals.items()))


if __name__ == "__main__":
    main()
