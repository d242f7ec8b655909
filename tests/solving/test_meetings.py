"""Reference meeting problems: annealing reaches at least the utility of a prototype, with less work."""

from pathlib import Path

import pytest
from support.instances import FOLDER, REASON

import dmcmc
from dmcmc.formats import native

REFERENCES = [  # file, runs, samples, least utility
    ("ms_A10_n10_D24_pl0.5_s0", 2, 100, 4020),
    ("ms_A10_n25_D24_pl0.5_s0", 4, 100, 24147),
    ("ms_A10_n50_D24_pl0.5_s0", 2, 50, 92518),
    ("ms_A10_n10_D96_pl0.5_s0", 2, 50, 18446),
    ("ms_A50_n10_D24_pl0.5_s0", 2, 50, 20708),
    ("mu_A10_n10_D24_pl0.5_s0", 2, 50, 204160),
    ("mu_A10_n25_D24_pl0.5_s0", 2, 100, 1156515),
    ("mu_A10_n10_D96_pl0.5_s0", 2, 50, 213533),
]


@pytest.mark.parametrize(("name", "runs", "samples", "least"), REFERENCES, ids=[row[0] for row in REFERENCES])
def test_annealing_reaches_a_known_utility(name, runs, samples, least):
    path = Path(FOLDER) / "meetings" / f"{name}.npz"
    if not FOLDER or not path.is_file():
        pytest.skip(REASON)
    local = {"method": "annealing", "runs": runs, "samples": samples, "bound": "none"}
    result = dmcmc.solve(native.load(path), local=local, seed=1)
    assert result.objective >= least
