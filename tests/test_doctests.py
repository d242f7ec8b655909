"""Examples in docstrings and in README give the results that they show."""

import doctest
import re
from importlib import import_module

import pytest
from imports import ROOT, TOP_FOLDERS, files

MODULES = [file.module for file in files(*TOP_FOLDERS) if ">>>" in file.text]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_are_right(module):
    failed, tried = doctest.testmod(import_module(module))
    assert tried and not failed


def test_examples_in_the_readme_run(tmp_path, monkeypatch, capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks:
        exec(block, names)
        printed = capsys.readouterr().out.splitlines()
        for expected in re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE):
            assert expected in printed
