"""Benchmark instances, if the environment variable ``DMCMC_INSTANCES`` names a folder that has them."""

import csv
import os
from pathlib import Path

FOLDER = os.environ.get("DMCMC_INSTANCES", "")
REASON = "DMCMC_INSTANCES names no folder with instances"


def rows(formats):
    """Return the manifest's rows for some formats, as dictionaries."""
    path = Path(FOLDER) / "instances" / "MANIFEST.csv"
    if not FOLDER or not path.is_file():
        return []
    with open(path, newline="") as stream:
        return [row for row in csv.DictReader(stream) if row["format"] in formats]


def path_of(row):
    """Return the path of an instance."""
    return next((Path(FOLDER) / "instances").glob(f"*/{row['file']}"))
