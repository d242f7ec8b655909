"""The public index of a folder of agents' files: damaged numbers are one error line."""

import json
import random

import pytest
from support.damaged.own_files import damaged, outcome, own_file

from dmcmc.formats import agent_files
from dmcmc.inference.runtime.errors import FileError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("owner", 10**30),
        ("owner", -1),
        ("owner", 99),
        ("sizes", 10**30),
        ("sizes", 0),
        ("crossing", -1),
        ("crossing", 10**30),
        ("entries", 10**30),
        ("entries", -5),
        ("digests", "é" * 64),
        ("constants", 10**30),
        ("agents", "a1"),
    ],
)
def test_numbers_outside_their_range_are_one_error_line(tmp_path, field, value):
    index = json.loads(own_file("index", tmp_path).whole)
    part = index[field]
    if field == "sizes":
        part[next(iter(part))] = value
    elif field == "crossing":
        part[0][0] = value
    else:
        part[:1] = [value]
    (tmp_path / agent_files.INDEX).write_text(json.dumps(index))
    with pytest.raises(FileError, match=r"index\.json: (is not the index|its parts do not fit together)") as caught:
        agent_files.read_index(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_index_of_the_other_sense_does_not_fit_the_agents_files(tmp_path):
    file = own_file("index", tmp_path)
    file.path.write_bytes(file.whole.replace(b'"sense":"max"', b'"sense":"min"'))
    with pytest.raises(FileError, match=r"agent-0\.npz: does not fit index\.json"):
        file.load()


def test_a_damaged_index_is_refused_in_one_line_or_read(tmp_path):
    file, rng = own_file("index", tmp_path), random.Random(2)
    assert outcome(file) == "read"
    for _ in range(200):
        file.path.write_bytes(damaged(file, rng))
        assert outcome(file) in ("read", "refused")
