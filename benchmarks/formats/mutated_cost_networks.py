"""Compare dmcmc's reading of damaged cost networks with an independent reading of the same files.

    python -m benchmarks.formats.mutated_cost_networks [--count 500] [--seed 0] [--show 20] [FORMAT ...]

Small valid files are damaged by changing, swapping, repeating or removing a few of their words. Each damaged file is
read by dmcmc and by an independent reader: toulbar2 for .wcsp, .cfn and .uai, each file in its own process, and a short
reader of this benchmark for XCSP and pyDCOP. If both accept a file, the domains, the optimum and the costs of four
random assignments must be equal. Files are damaged until dmcmc has accepted ``--count`` of them. The others are counted
by who refuses them; ``--show`` prints examples and reasons. An assignment whose sum of costs reaches the upper bound of
a .wcsp or .cfn file is forbidden for toulbar2 and only bad for dmcmc, which is no difference here.

Files outside their format's definition, on which the readers differ, are counted as ``undefined``: negative costs in
.wcsp (toulbar2 reads most of them as 0), tables of a Bayesian network that do not sum to 1 (toulbar2 replaces the last
entry), sizes such as 2.0 in .uai (toulbar2 stops reading), and nested networks in .cfn with another number of decimals
than the outer network (toulbar2 scales wrongly).
"""

import json
import random
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import isclose, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.formats import naive_readers
from benchmarks.formats.cost_network_seeds import SEEDS
from benchmarks.harness import Columns, Report, options
from dmcmc.formats import registry as formats
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import DmcmcError

MAX_ASSIGNMENTS = 4096  # files with more assignments are not compared
SAMPLES = 4  # random assignments whose costs are compared
CHANGES = (1, 1, 1, 2, 2)  # numbers of changes of a damaged file, equally likely
MAX_SHOWN_TEXT = 600  # characters of a file that --show prints
TOLERANCE = 2e-3  # absolute and relative difference of costs: toulbar2 rounds the logarithms of potentials
KINDS = (*("number",) * 6, "swap", "swap", "copy", "remove", "repeat", "line")  # kinds of changes, equally likely
NUMBERS = ("0", "1", "2", "3", "4", "5", "7", "9", "-1", "-3", "12", "100", "1.5", "0.25", "-0.5")
TABLE = Columns(
    ("format", "<8"), ("files", ">7"), ("both", ">7"), ("equal", ">7"), ("undefined", ">10"), ("differ", ">7"),
    ("only dmcmc", ">11"), ("only other", ">11"), ("neither", ">8"), ("too large", ">10"),
)  # fmt: skip
TOULBAR2 = Path(__file__).with_name("toulbar2_reader.py")

_TOKEN = re.compile(r"[A-Za-z_]\w*|[+-]?\d+(?:\.\d+)?|\n|[^\S\n]+|.")


class Reading(NamedTuple):
    """The problem that a reader finds in a file.

    Attributes
    ----------
    shape : list of int
        Domain sizes.
    optimum : float or None
        Best objective; None if every assignment is forbidden.
    costs : list of (float or None)
        Objectives of the sampled assignments; None if forbidden.
    error : str
        Why the reader refuses the file; empty if it accepts it.
    """

    shape: list[int]
    optimum: float | None
    costs: list[float | None]
    error: str = ""


def mutated(rng: random.Random, seeds: Sequence[str]) -> str:
    """Return a damaged seed: a few of its words are changed, swapped, repeated or removed, or a line is."""
    text = rng.choice(seeds)
    for _ in range(rng.choice(CHANGES)):
        tokens = _TOKEN.findall(text)
        words = [i for i, token in enumerate(tokens) if not token.isspace()]
        numbers = [i for i in words if re.fullmatch(r"[+-]?\d+(\.\d+)?", tokens[i])]
        if not numbers:  # a file of one line has lost it
            return mutated(rng, seeds)
        kind = rng.choice(KINDS)
        if kind == "number":
            tokens[rng.choice(numbers)] = rng.choice(NUMBERS)
        elif kind == "swap":
            a, b = rng.choice(numbers), rng.choice(numbers)
            tokens[a], tokens[b] = tokens[b], tokens[a]
        elif kind == "copy":
            tokens[rng.choice(words)] = tokens[rng.choice(words)]
        elif kind == "remove":
            del tokens[rng.choice(words)]
        elif kind == "repeat":
            at = rng.choice(words)
            tokens.insert(at, tokens[at] + " ")
        else:
            lines = text.splitlines(keepends=True)
            at = rng.randrange(len(lines))
            tokens = lines[:at] + rng.choice(([], [lines[at], lines[at]])) + lines[at + 1 :]
        text = "".join(tokens)
    return text


def ours(text: str, format: str, rng: random.Random) -> tuple[Reading, list[list[int]]] | None:
    """Return dmcmc's reading and the sampled assignments; None if the file has too many assignments."""
    try:
        problem = formats.parse(text.encode(), format, "file")
    except DmcmcError as error:
        return Reading([], None, [], str(error)), []
    shape = problem.domains.tolist()
    if prod(shape) > MAX_ASSIGNMENTS:
        return None
    found = {}
    for values in product(*map(range, shape)):
        evaluation = problem.evaluate(list(values))
        found[values] = None if evaluation.violation else float(evaluation.objective)
    allowed = [cost for cost in found.values() if cost is not None]
    best = (max if problem.sense == "max" else min)(allowed, default=None)
    samples = [rng.choice(list(found)) for _ in range(SAMPLES)]
    return Reading(shape, best, [found[s] for s in samples]), [list(s) for s in samples]


def by_toulbar2(texts: Sequence[str], samples: Sequence[list[list[int]]], format: str) -> list[Reading]:
    """Return toulbar2's reading of each file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"file.{format}")
        jobs = json.dumps([{"text": t, "samples": s} for t, s in zip(texts, samples, strict=True)])
        command = [sys.executable, str(TOULBAR2), str(path)]
        done = subprocess.run(command, input=jobs, capture_output=True, text=True, check=True)
    return [Reading(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith('{"shape"')]


def by_naive_reader(texts: Sequence[str], samples: Sequence[list[list[int]]], format: str) -> list[Reading]:
    """Return the reading of each file by this benchmark's own reader."""
    readings = []
    warnings.simplefilter("ignore", SyntaxWarning)  # of damaged expressions
    for text, chosen in zip(texts, samples, strict=True):
        try:
            network = naive_readers.READERS[format](text)
            if prod(network.shape) > MAX_ASSIGNMENTS:
                raise ValueError("too many assignments")
            found = {values: network.cost(values) for values in product(*map(range, network.shape))}
            allowed = [cost for cost in found.values() if cost is not None]
            best = (max if network.sense == "max" else min)(allowed, default=None)
            costs = [found.get(tuple(values)) for values in chosen]
            readings.append(Reading(network.shape, best, costs))
        except Exception as error:  # whatever a naive reader stumbles over is a refusal
            readings.append(Reading([], None, [], f"{type(error).__name__}: {error}"))
    return readings


def close(left: float | None, right: float | None) -> bool:
    """Return whether two objectives are equal up to rounding; None is forbidden."""
    if left is None or right is None:
        return left is right
    return isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def bounded(reading: Reading, text: str, format: str) -> Reading:
    """Return dmcmc's reading of a file with costs from the upper bound of the file on as forbidden, as for toulbar2."""
    if format == "wcsp":
        sign, bound = "<", float(text.split()[4])
    elif format == "cfn":
        sign, bound = next((m[1], float(m[2])) for m in re.finditer(r"([<>])([+-]?[\d.]+)", text))
    else:
        return reading

    def kept(cost: float | None) -> float | None:
        return cost if cost is None or (cost < bound if sign == "<" else cost > bound) else None

    return reading._replace(optimum=kept(reading.optimum), costs=[kept(cost) for cost in reading.costs])


def is_undefined(text: str, format: str) -> bool:
    """Return whether a file is outside its format's definition in a way that both readers accept."""
    if format == "cfn":
        decimals = {len(m[1].partition(".")[2]) for m in re.finditer(r"[<>]([+-]?[\d.]+)", text)}
        return len(decimals) > 1
    if format not in ("wcsp", "uai"):
        return False
    problem = formats.parse(text.encode(), format)
    if format == "wcsp":
        return any((utilities(factor) > 0).any() for factor in problem.factors)
    words = text.split()
    position = 3 + int(float(words[1]))
    for _ in problem.factors:
        position += 1 + int(float(words[position]))
    if any("." in word for word in words[:position]):
        return True
    tables = [np.exp(utilities(factor)) for factor in problem.factors if factor.scope]
    return text.startswith("BAYES") and not all(np.allclose(table.sum(axis=-1), 1) for table in tables)


def utilities(factor: Factor) -> NDArray[np.float64]:
    """Return the table of a factor as floats, with −∞ for forbidden entries."""
    table = factor.table
    return np.where(forbidden(table), -np.inf, table.astype(float))


def same(left: Reading, right: Reading) -> bool:
    """Return whether two readings agree."""
    agree = all(close(a, b) for a, b in zip(left.costs, right.costs, strict=True))
    # toulbar2 adds variables for global functions, and may prove infeasibility before it knows the domains.
    shapes = not right.shape or left.shape == right.shape[: len(left.shape)]
    return shapes and close(left.optimum, right.optimum) and agree


def compare(format: str, count: int, seed: int) -> tuple[list[Any], list[str]]:
    """Return the cells of a format's line, and a description of each file on which the readers disagree."""
    rng = random.Random(f"{format} {seed}")
    texts, readings, samples, too_large = list[str](), list[Reading](), list[list[list[int]]](), 0
    while sum(not reading.error for reading in readings) < count:
        text = mutated(rng, SEEDS[format])
        reading = ours(text, format, rng)
        if reading is None:
            too_large += 1
            continue
        texts.append(text)
        readings.append(reading[0])
        samples.append(reading[1])
    other = by_naive_reader if format in naive_readers.READERS else by_toulbar2
    tally, reasons, shown = Counter[str](), Counter[str](), list[str]()
    for text, mine, theirs in zip(texts, readings, other(texts, samples, format), strict=True):
        if mine.error or theirs.error:
            kind = "neither" if mine.error and theirs.error else "only other" if mine.error else "only dmcmc"
            detail = mine.error or theirs.error
        else:
            kind = "equal" if same(bounded(mine, text, format), theirs) else "differ"
            kind = "undefined" if kind == "differ" and is_undefined(text, format) else kind
            detail = f"dmcmc {mine[:3]}, other {theirs[:3]}"
        tally[kind] += 1
        if kind in ("differ", "only dmcmc"):
            shown.append(f"{kind}: {detail}\n{text[:MAX_SHOWN_TEXT]}")
        elif kind == "only other":
            reasons[re.sub(r"'[^']*'|-?\d+(\.\d+)?", "N", detail.partition(": ")[2])] += 1
    shown += [f"refused only by dmcmc, {n} times: {reason}" for reason, n in reasons.most_common()]
    both = tally["equal"] + tally["undefined"] + tally["differ"]
    kinds = ("equal", "undefined", "differ", "only dmcmc", "only other", "neither")
    return [format, len(texts) + too_large, both, *(tally[kind] for kind in kinds), too_large], shown


def main() -> None:
    """Print a line per format, and the files on which the readers disagree."""
    parser = options(__file__, __doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"of {', '.join(SEEDS)} (default: all)")
    parser.add_argument("--count", type=int, default=500, help="damaged files of each format that are accepted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="print at most this number of disagreements of each kind")
    given = parser.parse_args()
    report = Report(__file__, given)
    report(TABLE.head)
    examples: dict[str, list[str]] = {}
    for format in given.formats or SEEDS:
        cells, examples[format] = compare(format, given.count, given.seed)
        report(TABLE.line(*cells))
    for format, shown in examples.items():
        kinds = Counter[str]()
        for text in shown:
            kind = re.split("[:,]", text)[0]
            kinds[kind] += 1
            if kinds[kind] <= given.show:
                report(f"\n--- {format}, {text}")
    report.keep()


if __name__ == "__main__":
    main()
