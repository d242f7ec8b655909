"""Benchmark instances of every format have the sizes and the optima of the manifest."""

import csv
import math
import os
from pathlib import Path

import pytest

import dmcmc
from dmcmc.formats import registry as formats

ROOT = Path(os.environ["DMCMC_INSTANCES"]) / "instances" if "DMCMC_INSTANCES" in os.environ else None
SEVERAL_FACTORS = {"salldiff1.cfn", "SimpleHouse.yml"}  # one constraint of the file is several factors here
OBSERVED = {"Pedigree_11.uai"}  # observations reduce domains
# toulbar2 counts the least cost of a dense table over four or more variables twice; so does the manifest (3.157695).
OPTIMA = {"alarm.cfn.gz": "3.086727"}
MAX_LOG10_TABLE = 4.5  # log10 of the largest table that is joined


def manifest_rows():
    """Return the rows of the manifest as test parameters; none without a folder of instances."""
    if ROOT is None:
        return [pytest.param(None, marks=pytest.mark.skip("DMCMC_INSTANCES names no folder of instances"))]
    with open(ROOT / "MANIFEST.csv", newline="") as stream:
        return [pytest.param(row, id=row["file"]) for row in csv.DictReader(stream)]


def path_of(row):
    """Return the path of an instance."""
    (path,) = ROOT.glob(f"*/{row['file']}")
    return path


@pytest.mark.parametrize("row", manifest_rows())
def test_every_instance_is_read_with_the_sizes_of_the_manifest(row):
    problem = formats.load(path_of(row))
    assert problem.n_variables == int(row["n_vars"])
    assert max(len(f.scope) for f in problem.factors) == int(row["max_arity"])
    if row["file"] not in OBSERVED:
        assert problem.domains.max() == int(row["max_domain"])
    if row["file"] not in SEVERAL_FACTORS:
        assert len(problem.factors) == int(row["n_constraints"])
    assert problem.sense == ("max" if row["format"] in ("uai", "bif.gz") or "max" in row["file"] else "min")


def is_easy(row):
    """Return whether elimination solves an instance at once."""
    table = row["log10_largest_table"]
    proved = row["optimum_status"] == "proved here"
    return proved and (row["format"].startswith("cfn") or (table and float(table) < MAX_LOG10_TABLE))


@pytest.mark.parametrize("row", [p for p in manifest_rows() if not p.values[0] or is_easy(p.values[0])])
def test_known_optima_are_found(row):
    result = dmcmc.solve(formats.load(path_of(row)), method="exact", device="cpu")
    if row["optimum"] == "INFEASIBLE":
        assert result.status == "infeasible"
        return
    assert result.status == "optimal"
    optimum = OPTIMA.get(row["file"], row["optimum"])
    digits = len(optimum.partition(".")[2])
    assert math.isclose(result.objective, float(optimum), rel_tol=0, abs_tol=0.51 * 10**-digits * (digits > 0))
