"""The registry of formats: recognition by content, selection by name; damaged files raise only dmcmc's errors."""

import bz2
import gzip
import lzma

import pytest
from support.damaged import formats as damaged_formats

from dmcmc.config.configuration import parse, problem_of
from dmcmc.formats import native
from dmcmc.formats import registry as formats
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, FileError, Unavailable


@pytest.mark.parametrize("format", sorted(set(damaged_formats.SEEDS) - {"ics"}))  # an .ics file holds busy times
def test_files_are_recognised_by_their_content(tmp_path, format):
    for number, data in enumerate(damaged_formats.SEEDS[format]):
        if b"{{t <9}" in data:
            continue
        for pack in (bytes, gzip.compress, lzma.compress, bz2.compress):
            path = tmp_path / f"file{number}"
            path.write_bytes(pack(data))
            assert formats.load(path).variables == formats.parse(data, format).variables
        assert formats.recognise(formats.SourceFile("file", data)).name == format


def test_native_archives_are_recognised_and_forced(tmp_path):
    problem = formats.parse(b"p 1 2 1 9 2 1 0 0 1 0 4")
    native.save(problem, tmp_path / "file")
    assert formats.load(tmp_path / "file").sense == "min"
    assert formats.load(tmp_path / "file", "native").n_variables == 1
    with pytest.raises(FileError):
        formats.load(tmp_path / "file", "wcsp")
    (tmp_path / "text").write_text("p 0 0 0 1")
    with pytest.raises(FileError):
        formats.load(tmp_path / "text", "native")


def test_a_format_may_be_forced(tmp_path):
    path = tmp_path / "x.uai"
    path.write_bytes(b"MARKOV 0 0 0 9")  # also a valid wcsp problem of this name
    with pytest.raises(FileError, match="line 1: 2 numbers follow"):
        formats.load(path)
    assert formats.load(path, "wcsp").name == "MARKOV"
    assert problem_of({"file": str(path), "format": "wcsp"}).name == "MARKOV"
    with pytest.raises(Unavailable, match=r"problem\.file: format 'wscp' is not known; there are native, "):
        problem_of({"file": str(path), "format": "wscp"})
    with pytest.raises(ConfigError, match="unknown key"):
        parse({"problem": {"file": str(path), "colour": "red"}})


def test_unknown_content_is_refused(tmp_path):
    path = tmp_path / "x.dat"
    path.write_bytes(b"what is this")
    with pytest.raises(FileError, match="is none of the known formats"):
        formats.load(path)
    path.write_bytes(b"")
    with pytest.raises(FileError, match="is none of the known formats"):
        formats.load(path)


def test_long_messages_are_cut():
    with pytest.raises(DmcmcError) as caught:
        formats.parse(b"p 1 2 1 9\n2\n1 0 -1 " + b"x" * 10_000, "wcsp")
    assert len(str(caught.value)) < 500


@pytest.mark.filterwarnings("ignore::dmcmc.inference.runtime.errors.FileWarning")
@pytest.mark.parametrize("format", ["wcsp", "uai", "bif", "cfn", "calendar", "ics", "npz", "zip"])
def test_damaged_files_raise_only_dmcmc_errors(format):
    damaged_formats.run(format, 400, seed=1)
    if format != "ics":
        damaged_formats.run_compressed(format, 4, 32 << 20, seed=1)
