"""Extreme numbers: a format reads and writes them exactly, or refuses them with their place in one line."""

import warnings

import pytest

from dmcmc.formats import registry as formats
from dmcmc.formats.common.factor_entries import drop_features
from dmcmc.inference.runtime.errors import DmcmcError, FileError

WORDS = [
    *("1e300", "1.7e308", "-1.7e308", "1.8e308", "1e400", "1e19", "1e-310", "5e-324", "0.1", "-0.0", "1e-400"),
    *(str(2**62), str(2**62 + 1), str(2**63 - 1), str(1 - 2**63), str(-(2**63)), str(2**63), str(2**64), str(10**25)),
    *("1" + "0" * 39 + ".5", "1" + "0" * 400, "9" * 5000),
]
TEXTS = {
    "wcsp": "p 1 2 2 {w}0\n2\n1 0 0 1\n0 {w}\n0 {w} 0\n",
    "wcsp with default": "p 1 2 2 99999999999999999999999999\n2\n1 0 {w} 1\n0 3\n0 {w} 0\n",
    "uai": "MARKOV\n1\n2\n2\n1 0\n1 0\n2 {w} 1\n2 {w} {w}\n",
    "bif": "network u {{}}\nvariable a {{ type discrete [ 2 ] {{ t, f }}; }}\n"
    "probability ( a ) {{ table {w}, 0.5; }}\n",
    "cfn": '{{ problem: {{ name: "m", mustbe: ">-{w}"}}, variables: {{ v1: 2 }}, functions: {{ '
    "c0: {{scope: [], costs: [{w}]}}, c1: {{scope: [v1], costs: [{w}, 0.5]}} }} }}",
    "cfn of decimals": '{{ problem: {{ name: "m", mustbe: "<1000.000"}}, variables: {{ v1: 2 }}, functions: {{ '
    "c0: {{scope: [], costs: [{w}]}}, c1: {{scope: [v1], costs: [{w}, 0.5]}} }} }}",
    "pydcop": "name: a\nobjective: min\ndomains: {{d: {{values: [0, {w}]}}}}\nvariables:\n"
    "  x: {{domain: d, cost_function: 'x * {w}'}}\nconstraints:\n"
    "  c: {{type: extensional, variables: x, default: {w}, values: {{{w}: 0}}}}\n"
    "  e: {{type: intention, function: {w} }}\nagents: [a]\n",
    "pydcop to maximise": "name: a\nobjective: max\ndomains: {{d: {{values: [0, 1]}}}}\nvariables:\n"
    "  x: {{domain: d, cost_function: 'x * {w} + {w}'}}\nconstraints:\n"
    "  c: {{type: extensional, variables: x, default: {w}, values: {{1.5: 0}}}}\nagents: [a]\n",
    "xcsp": '<instance><presentation name="x" maximize="false" format="XCSP 2.1_FRODO"/><domains nbDomains="1">'
    '<domain name="d" nbValues="2">0 {w}</domain></domains><variables nbVariables="1"><variable name="x" domain="d"/>'
    '</variables><relations nbRelations="1"><relation name="r" arity="1" nbTuples="1" semantics="soft" '
    'defaultCost="{w}">{w}:0</relation></relations><functions><function name="f" return="int"><parameters>int X int Y'
    "</parameters><expression><functional>add(mul(X,Y),Y)</functional></expression></function></functions><constraints>"
    '<constraint name="c" arity="1" scope="x" reference="r"/><constraint name="e" arity="1" scope="x" reference="f">'
    "<parameters>x {w}</parameters></constraint></constraints></instance>",
}
SENSE = {"wcsp": "min", "uai": "max"}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("word", WORDS, ids=lambda w: w[:20])
def test_extreme_numbers_are_preserved_or_refused_in_one_line(kind, word, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            problem = formats.parse(TEXTS[kind].format(w=word).encode(), kind.split()[0])
        except FileError as error:
            assert "\n" not in str(error) and str(error).startswith(("text: line ", "text:")), str(error)
            return
        for target in ("wcsp", "cfn", "uai", "xcsp", "pydcop", "native"):
            plain = drop_features(problem, {"agents", "labels", "names", "sense"}, SENSE.get(target))
            path = tmp_path / f"p{formats.format_named(target).suffixes[0]}"
            try:
                formats.save(plain, path)
            except DmcmcError as error:
                assert "\n" not in str(error) and not path.exists()
                continue
            again = formats.load(path)
            for value in range(2):
                expected, found = plain.evaluate([value]), again.evaluate([value])
                assert bool(expected.violation) == bool(found.violation)
                assert expected.violation or expected.objective == pytest.approx(found.objective, rel=1e-12, abs=1e-12)
                exact = target not in ("uai", "cfn")
                assert expected.violation or not exact or expected.objective == found.objective


def test_a_cost_below_a_top_beyond_64_bits_is_allowed():
    problem = formats.parse(b"p 1 2 1 99999999999999999999\n2\n1 0 0 1\n0 9223372036854775807\n", "wcsp")
    assert problem.evaluate([0]) == (2**63 - 1, 0)
