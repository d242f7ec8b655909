"""Draw the pages of docs/papers/ anew from the saved runs of the papers' experiments.

    python -m benchmarks.papers.pages [--only TEXT]

Titles, texts, published numbers and notes are taken from the configuration in ``configs/papers/``, so that a page shows
their current wording; the runs and the machine are those that were saved.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import yaml

from benchmarks.harness import ROOT
from benchmarks.papers.evidence import RUNS
from benchmarks.papers.gpu_runs import AGAIN, CONFIGS
from dmcmc.report.experiment.report import write_report

PAGES = ROOT / "docs" / "papers"
_TEXTS = ("title", "text", "paper", "report")  # of a configuration, which may have changed since the runs


def draw(folder: Path) -> None:
    """Draw the page of one experiment."""
    stored = json.loads((folder / "experiment.json").read_text(encoding="utf-8"))
    config = yaml.safe_load((CONFIGS / f"{folder.name.removesuffix(AGAIN)}.yaml").read_text(encoding="utf-8"))
    stored["experiment"] |= {name: config[name] for name in _TEXTS if name in config}
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary)
        (copy / "experiment.json").write_text(json.dumps(stored), encoding="utf-8")
        shutil.copy(folder / "runs.jsonl", copy)
        write_report(copy)
        shutil.copy(copy / "report.html", PAGES / f"{folder.name}.html")


def main() -> None:
    """Draw the pages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.pages", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="only experiments whose name contains TEXT")
    given = parser.parse_args()
    for folder in sorted(RUNS.iterdir()):
        if given.only in folder.name:
            draw(folder)
            print(folder.name, flush=True)


if __name__ == "__main__":
    main()
