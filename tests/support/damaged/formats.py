"""Damage small valid files at random and read them: only ``DmcmcError`` may occur, in bounded time and memory.

PYTHONPATH=tests python -m support.damaged.formats [--count 100000] [--seed 0] [--compressed MIB] [FORMAT ...]
"""

import argparse
import bz2
import gzip
import lzma
import random
import re
import resource
import sys
import tempfile
import time
from pathlib import Path

from dmcmc.formats import registry as formats
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from support.dcop_examples import SEEDS as DCOP_SEEDS

SLOW = 5.0  # time limit of one input, seconds
LARGEST = 1 << 16  # largest input, bytes
MEMORY = 3 << 30  # address space of the process, bytes

SEEDS = {
    "wcsp": [
        b"example 2 3 3 100\n2 3\n1 0 0 1\n0 4\n2 0 1 7 2\n0 1 1\n1 2 100\n0 5 0\n",
        b"p 4 2 4 9\n2 2 2 3\n-2 0 1 3 1\n0 1 9\n2 2 1 0 -1\n-1 3 0 1\n2 5\n1 3 0 -2\n",
        b"p 4 3 4 50\n3 3 3 2\n4 0 1 2 3 -1 salldiff var 2\n3 0 1 2 -1 sgcc var 1 2 0 1 2 1 0 1\n"
        b"4 0 1 2 3 -1 wsum lin 2 <= 3\n4 3 2 1 0 -1 wamong hard 7 2 0 1 1 2\n",
        b"p 3 3 4 50\n3 3 3\n3 0 1 2 -1 wregular 2 1 0 0 1 1 1 4 0 0 0 1 0 1 1 0 1 2 1 2 1 0 0 1\n"
        b"2 0 1 -1 >= 1 2\n2 1 2 -1 disj 1 1 4\n3 0 1 2 -1 knapsackp 2 1 0 1 2 1 1 2 3 1 1 1\n",
        b"p 6 2 2 9\n2 2 2 2 2 2\n6 0 1 2 3 4 5 -1 clique 1 1 1 1 1 1 1 1 1 1 1 1 1\n6 0 1 2 3 4 5 9 1\n"
        b"1 1 1 1 1 1 0\n",
    ],
    "uai": [
        b"MARKOV\n3\n2 2 3\n2\n2 0 1\n3 0 1 2\n\n4\n 4.000 2.400\n 1.000 0.000\n\n12\n 2.2500 3.2500 3.7500\n"
        b" 0.0000 0.0000 10.0000\n 1.8750 4.0000 3.3330\n 2.0000 2.0000 3.4000\n",
        b"BAYES\n2\n2 2\n2\n1 0\n2 0 1\n2 0.436 0.564\n4 1.28e-1 0.872 0.920 .08\n",
    ],
    "bif": [
        b'network "n" {\n property author me ;\n}\n// rain\nvariable rain { type discrete [ 2 ] { yes, no }; }\n'
        b"variable wet { type discrete [ 3 ] { a, b, c }; property x = 1; }\nprobability ( rain ) { table 0.2, 0.8; }\n"
        b"probability ( wet | rain ) { (no) 0.1, 0.2, 0.7; (yes) 1e-1, 0.9, 0.0; }\n",
        b"network u {}\nvariable a { type discrete [ 2 ] { t, f }; }\nvariable b { type discrete [ 2 ] { t, f }; }\n"
        b"variable c { type discrete [ 2 ] { t, f }; }\nprobability ( c | a, b ) { default 0.5, 0.5; (t, f) .3, .7; }\n"
        b"probability ( b | a ) { table 0.1, 0.2, 0.9, 0.8; } /* end */\n"
        b"probability ( a ) { default 0.4 0.6; }\n",
    ],
    "xmlbif": [
        b'<?xml version="1.0"?>\n<!DOCTYPE BIF [ <!ELEMENT BIF ( NETWORK )*> ]>\n<BIF VERSION="0.3">\n<NETWORK>\n'
        b'<NAME>n</NAME><!-- two -->\n<VARIABLE TYPE="nature"><NAME>rain</NAME><OUTCOME>yes</OUTCOME>'
        b"<OUTCOME>no</OUTCOME>"
        b"<PROPERTY>x = 1</PROPERTY></VARIABLE>\n<VARIABLE><NAME>wet</NAME><OUTCOME>a</OUTCOME><OUTCOME>b</OUTCOME>"
        b"<OUTCOME>c</OUTCOME></VARIABLE>\n<DEFINITION><FOR>rain</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>\n"
        b"<DEFINITION><FOR>wet</FOR><GIVEN>rain</GIVEN><TABLE>0.1 0.2 0.7\n1e-1 0.9 0</TABLE></DEFINITION>\n"
        b"</NETWORK></BIF>\n",
    ],
    "hugin": [
        b'net\n{\n    node_size = (80 40);\n}\n% rain\nnode rain\n{\n    states = ("yes" "no");\n    label = "";\n}\n'
        b'node wet { states = ("a" "b" "c"); }\npotential (rain) { data = ( 20 80 ); }\n'
        b"potential (wet | rain)\n{\n    data = (( 0.1 0.2 0.7 )\t% yes\n ( 1e-1 0.9 0.0 ));\n\n"
        b"    experience = ( 1 2 );\n}\n",
        b"class C {\n inputs = ();\n node a { states = (t f); } node b { states = (t f); }\n"
        b" discrete node c {states=(0 1);}\n"
        b" potential (c | a b) { data = (((1 0)(.5 .5))((.3 .7)(0 1))); } potential (a | ) { data = (.1 .9); }\n"
        b" potential (b | a) { data = (.1 .9 .2 .8); } /* end */ }\n",
    ],
    "cfn": [
        b'{\n problem: { name: "m", mustbe: ">-5.0"},\n variables: { "v1": ["a", "b"], v2: 2 },\n# comment\n'
        b' functions: {\n "c0": {scope: [], costs: [-6.0]},\n "c1": {scope: ["v1"], costs: [1.0, 0.5]},\n'
        b' "c12": {scope: ["v1", "v2"], defaultcost: 1.5, costs: ["b" 0 -2.0, 0 1 5.5]},\n'
        b" c3: {scope: [v1] costs: c1} }\n}\n",
        b"{ problem: {name: S, mustbe: <12.000 }\n variables: {v1: [a b c] v2: [a b c] v3: [a b c] v4: 3}\n"
        b" functions: {\n s: { scope: [v1 v2 v3 v4] type : salldiff params : { metric: var cost: 0.7 } }\n"
        b" g: { scope: [v1 v2] type: sgcc params: {metric: wdec cost: 0.5 bounds: [[0 1 2 0.2 0.2] [1 0 1 0.2 0.1]]}}\n"
        b" r: { scope: [v1 v2 v4] type: wregular params: {nb_states: 2 starts: [[0 0.0]] ends: [[1 -1.0]]\n"
        b" transitions: [[0 0 1 0.5][0 1 1 0.0][1 2 1 1.0][1 1 1 -1.0]]}}\n"
        b" k: { scope: [v1 v2] type: knapsackp params: {capacity: 1 weightedvalues: [[[0 1]] [[1 2][2 1]]]}} } }\n",
        b"{{t <9} {[a b] 2} {{{0 1} {1 2 3 4}} {{0} 2 {a 1}}}}",
    ],
} | DCOP_SEEDS

_TOKEN = re.compile(rb"[A-Za-z_]\w*|[+-]?[\d.]+(?:[eE][+-]?\d+)?|[^\s\w]|\s+")
_NUMBERS = [
    *(b"0", b"-1", b"1", b"2", b"-2", b"3", b"63", b"64", b"65", b"255", b"1000", b"65536", b"99999999", b"2147483648"),
    *(b"4294967296", b"999999999999", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808"),
    *(b"1" * 30, b"9" * 500, b"9" * 5000, b"1.5", b"-0.0", b".", b"1e5", b"1e308", b"1e999", b"1e-999", b"1e999999999"),
    *(b"nan", b"inf", b"-inf", b"0x10", b"1_0", b"\xd9\xa3", b"1.2.3", b"--1", b"+7", b"00000000000000000000001"),
    *(b"!!int ''", b"!!float -", b"!!bool 2", b"!!timestamp 1", b"!!binary a", b"!!set {a}", b"&a [*a]", b"<<: {a: 1}"),
]
_BYTES = bytes(range(256)) + b"0123456789 \n{}[](),;:-." * 20


def mutate(rng: random.Random, seeds: list[bytes]) -> bytes:
    """Return a damaged seed."""
    data = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 10))):
        data = _mutated(rng, data, seeds)[:LARGEST] or b" "
    return data


def _mutated(rng: random.Random, data: bytes, seeds: list[bytes]) -> bytes:
    kind = rng.randrange(9)
    i = rng.randrange(len(data))
    if kind == 0:
        return data[:i] + bytes([rng.choice(_BYTES)]) + data[i + 1 :]
    if kind == 1:
        return data[:i] + bytes([rng.choice(_BYTES)]) + data[i:]
    if kind == 2:
        return data[:i] + data[i + rng.randrange(1, 20) :]
    if kind == 3:
        return data[:i]
    if kind == 4:
        other = rng.choice(seeds)
        return data[:i] + other[rng.randrange(len(other)) :]
    if kind == 5:
        j = min(len(data), i + rng.randrange(1, 60))
        return data[:j] + data[i:j] * rng.choice((1, 1, 2, 30)) + data[j:]
    tokens = _TOKEN.findall(data)
    if not tokens:
        return data
    a, b = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    if kind == 6:
        tokens[a], tokens[b] = tokens[b], tokens[a]
    elif kind == 7:
        numbers = [t for t, token in enumerate(tokens) if token[-1:].isdigit()] or [a]
        tokens[rng.choice(numbers)] = rng.choice(_NUMBERS)
    else:
        tokens[a] = tokens[b] * rng.choice((1, 2, 2000))
    return b"".join(tokens)


def attempt(data: bytes, format: str) -> float:
    """Read one input, evaluate the problem if it is valid, and return the processor time."""
    start = time.process_time()
    try:
        problem = formats.parse(data, format)
    except DmcmcError as error:
        assert "\n" not in str(error), str(error)
        assert len(str(error)) < 1000, str(error)
        assert "does not fit the memory" not in str(error), "took all the memory there was"
    else:
        problem.evaluate([0] * problem.n_variables)
        problem.forbidden_entries()
    return time.process_time() - start


def run(format: str, count: int, seed: int = 0) -> tuple[int, float]:
    """Read damaged files of a format; return the approximate number of valid ones and the longest time."""
    rng = random.Random(f"{format} {seed}")
    valid, longest = 0, 0.0
    for seed_file in SEEDS[format]:
        formats.parse(seed_file, format)
    for number in range(count):
        data = mutate(rng, SEEDS[format])
        try:
            seconds = attempt(data, format)
        except BaseException:
            print(f"{format}, input {number}: {data!r}", file=sys.stderr)
            raise
        if seconds > SLOW:
            raise AssertionError(f"{format}, input {number}: {seconds:.1f} s: {data!r}")
        longest = max(longest, seconds)
        valid += _valid(data, format) if number % 100 == 0 else 0
    return valid * 100, longest


def run_compressed(format: str, count: int, budget: int, seed: int = 0) -> tuple[int, int]:
    """Read compressed files, damaged and with a part repeated; return how many are valid, and the largest growth.

    Parameters
    ----------
    budget : int
        Memory budget in bytes; an eighth of it is the largest text.
    """
    rng, valid, growth, before = random.Random(f"{format} {seed}"), 0, 0, resident_memory()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            data = mutate(rng, SEEDS[format])
            i, j = sorted(rng.randrange(len(data) + 1) for _ in range(2))
            data = data[:j] + data[i:j] * (int(budget / 8 * 2 ** -rng.uniform(0, 8)) // max(1, j - i)) + data[j:]
            file = Path(folder) / f"{number}.gz"
            file.write_bytes(rng.choice((gzip.compress, bz2.compress, lzma.compress))(data))
            del data
            Path("/proc/self/clear_refs").write_text("5")  # the peak of the resident memory begins anew
            with MEMORY_ACCOUNT.open(budget, resident_memory()):
                try:
                    formats.load(file, format)
                    valid += 1
                except DmcmcError as error:
                    assert "\n" not in str(error) and len(str(error)) < 1000, str(error)
            peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
            assert peak is not None, "only on Linux"
            growth = max(growth, int(peak[1]) * 1024 - before)
            assert growth <= 1.3 * budget + 300e6, f"{format}, input {number}: {growth} bytes"
    return valid, growth


def _valid(data: bytes, format: str) -> bool:
    try:
        formats.parse(data, format)
    except DmcmcError:
        return False
    return True


def main() -> None:
    """Fuzz formats from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("formats", nargs="*", choices=[[], *SEEDS])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compressed", type=int, help="memory budget in MiB for compressed files, which are read then")
    arguments = parser.parse_args()
    if arguments.compressed:
        for format in arguments.formats or SEEDS:
            valid, growth = run_compressed(format, arguments.count, arguments.compressed << 20, arguments.seed)
            print(f"{format}: {arguments.count} files, {valid} valid, peak {growth >> 20} MiB more", flush=True)
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for format in arguments.formats or SEEDS:
        start = time.perf_counter()
        valid, longest = run(format, arguments.count, arguments.seed)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        seconds = time.perf_counter() - start
        print(
            f"{format}: {arguments.count} inputs, about {valid} valid, {seconds:.0f} s,"
            f" longest {longest:.2f} s, peak memory {peak:.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
