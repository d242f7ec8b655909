"""Damage small valid files at random and read them: only ``DmcmcError`` may occur, in bounded time and memory.

PYTHONPATH=tests python -m support.damaged.formats [--count 100000] [--seed 0] [--compressed MIB] [FORMAT ...]
"""

import argparse
import bz2
import gzip
import io
import lzma
import random
import re
import resource
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dmcmc import Factor, Problem
from dmcmc.formats import native
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
    "calendar": [
        b"calendar: c\nfirst_day: 2027-03-01\ndays: 5\nhours: 09:00-17:00\nslot: 30\ntimezone: Europe/Berlin\n"
        b"everyone: {max_per_day: 4, lunch: 12:00-14:00}\npeople:\n  Ann: {busy: [Mon mornings, Thu 13:00-15:00],"
        b" prefer: {mornings: 3, not Friday: 2}}\n  Bob: {busy: [Tue, Fri after 15:00], prefer: [afternoons]}\n"
        b"rooms:\n  Blue: {capacity: 6}\n  Red: {capacity: 3, busy: Mon}\ntravel: {Blue - Red: 10}\nmeetings:\n"
        b"  A: {people: [Ann, Bob], slots: 2, when: [Mon, Wed], after: B}\n  B: {people: [Bob], room: none}\n"
        b"  C: {people: [Ann], weight: 8, optional: {Bob: 2}, buffer: 30}\n  D: {people: [Ann], fixed: Wed 10:00}\n",
        b"calendar: x\nfirst_day: 2027-03-22\ndays: 10\nhours: 08:00-20:00\n"
        b"people: {A: , B: {max_in_a_row: 120}}\nmeetings:\n  S: {people: [A], repeat: weekly}\n  T: {people: [A]}\n",
    ],
    "ics": [
        b"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//a//b//EN\r\nBEGIN:VTIMEZONE\r\nTZID:Z\r\nBEGIN:STANDARD\r\n"
        b"DTSTART:19701025T030000\r\nRRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU\r\nTZOFFSETFROM:+0200\r\n"
        b"TZOFFSETTO:+0100\r\nEND:STANDARD\r\nEND:VTIMEZONE\r\nBEGIN:VEVENT\r\nUID:1\r\n"
        b"DTSTART;TZID=Europe/Berlin:20270302T090000\r\nDTEND;TZID=Europe/Berlin:20270302T103000\r\n"
        b"RRULE:FREQ=WEEKLY;COUNT=4;BYDAY=TU,TH\r\nEXDATE;TZID=Europe/Berlin:20270304T090000\r\nSUMMARY:a\\,b\r\n"
        b"END:VEVENT\r\nBEGIN:VEVENT\r\nUID:2\r\nDTSTART;VALUE=DATE:20270305\r\nDURATION:P1D\r\n"
        b"TRANSP:OPAQUE\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
        b"BEGIN:VCALENDAR\r\nBEGIN:VFREEBUSY\r\nUID:3\r\nFREEBUSY;FBTYPE=BUSY:20270303T100000Z/PT1H,20270304T100000Z/"
        b"20270304T110000Z\r\nEND:VFREEBUSY\r\nBEGIN:VEVENT\r\nUID:4\r\nDTSTART;TZID=Europe/London:20270301T100000\r\n"
        b"RDATE;TZID=Europe/London:20270308T100000\r\nDURATION:PT45M\r\nSTATUS:TENTATIVE\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
    ],
} | DCOP_SEEDS

OF_BUSY_PERSON = """calendar: busy
first_day: 2027-03-01
days: 20
hours: 08:00-18:00
timezone: Europe/Berlin
people: {Ann: {busy: [{ics: given.ics}]}}
meetings: {M: {people: [Ann]}}
"""
ARCHIVES = {"npz": zipfile.ZIP_STORED, "zip": zipfile.ZIP_DEFLATED}  # compression of the members


def archive(kind: str, problem: Problem | None = None) -> bytes:
    """Return a native archive of a small problem, or of another one, with compressed members or not."""
    if problem is None:
        problem = formats.parse(SEEDS["wcsp"][0], "wcsp")
    with tempfile.TemporaryDirectory() as folder:
        native.save(problem, Path(folder) / "p.npz")
        return packed(unpacked((Path(folder) / "p.npz").read_bytes()), ARCHIVES[kind])


def unpacked(data: bytes) -> dict[str, bytes]:
    """Return the members of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(members: Mapping[str, bytes], compression: int) -> bytes:
    """Return an archive with some members, whose checksums are right."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        for name, member in members.items():
            file.writestr(name, member)
    return stream.getvalue()


def damaged_archive(rng: random.Random, kind: str, whole: bytes) -> bytes:
    """Return an archive with changed bytes, or one with changed members, whose checksums are right."""
    if rng.random() < 0.3:
        return mutate(rng, [whole])
    members = unpacked(whole)
    name = rng.choice(sorted(members))
    members[name] = mutate(rng, [members[name]])
    if rng.random() < 0.1:
        members.pop(rng.choice(sorted(members)))
    return packed(members, ARCHIVES[kind])


def read(data: bytes, format: str) -> Problem:
    """Read a problem of a format; an .ics file has the busy times of a person of a calendar."""
    if format != "ics" and format not in ARCHIVES:
        return formats.parse(data, format)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"given.{format}"
        file.write_bytes(data)
        if format in ARCHIVES:
            return formats.load(file)
        calendar = Path(folder) / "calendar.yaml"
        calendar.write_text(OF_BUSY_PERSON)
        return formats.load(calendar)


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
        problem = read(data, format)
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
    whole = archive(format) if format in ARCHIVES else b""
    for seed_file in SEEDS.get(format, [whole]):
        read(seed_file, format)
    for number in range(count):
        data = damaged_archive(rng, format, whole) if whole else mutate(rng, SEEDS[format])
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
    """Read compressed files that expand to up to twice a memory budget; return how many are valid, and the peak.

    Half of them are valid texts or archives if they fit; the others are damaged, with a part repeated.

    Parameters
    ----------
    budget : int
        Memory budget in bytes; an eighth of it is the largest text.

    Returns
    -------
    valid, growth : int
        Number of files that could be read, and the largest growth of the resident memory in bytes.
    """
    rng, valid, growth, before = random.Random(f"{format} {seed}"), 0, 0, resident_memory()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            file, size = Path(folder) / f"{number}.gz", int(budget * 2 ** rng.uniform(-9, 1))
            if format in ARCHIVES:
                file = file.with_suffix(f".{format}")
                file.write_bytes(large_archive(rng, format, size))
            else:
                data = large_text(rng, format, size) if number % 2 else repeated_part(rng, format, size)
                file.write_bytes(rng.choice((gzip.compress, bz2.compress, lzma.compress))(data))
                del data
            Path("/proc/self/clear_refs").write_text("5")  # the peak of the resident memory begins anew
            with MEMORY_ACCOUNT.open(budget, resident_memory()):
                try:
                    formats.load(file, None if format in ARCHIVES else format)
                    valid += 1
                except DmcmcError as error:
                    assert "\n" not in str(error) and len(str(error)) < 1000, str(error)
            peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
            assert peak is not None, "only on Linux"
            growth = max(growth, int(peak[1]) * 1024 - before)
            assert growth <= 1.3 * budget + 300e6, f"{format}, input {number}: {growth} bytes"
            file.unlink()
    return valid, growth


def repeated_part(rng: random.Random, format: str, size: int) -> bytes:
    """Return a damaged text of about some bytes, in which a part is repeated."""
    data = mutate(rng, SEEDS[format])
    i, j = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:j] + data[i:j] * (size // max(1, j - i)) + data[j:]


def large_text(rng: random.Random, format: str, size: int) -> bytes:
    """Return a valid text of about some bytes: a large table where the format is simple, otherwise empty lines."""
    if format == "wcsp":
        values = max(2, int((size / 12) ** 0.5))
        rows = b"".join(b"".join(b"%d %d 1\n" % (i, j) for j in range(values)) for i in range(values))
        return b"large 2 %d 1 9\n%d %d\n2 0 1 0 %d\n" % (values, values, values, values * values) + rows
    if format == "uai":
        values = max(2, int((size / 2) ** 0.5))
        head = b"MARKOV\n2\n%d %d\n1\n2 0 1\n\n%d\n" % (values, values, values * values)
        return head + b"1 " * (values * values)
    return rng.choice(SEEDS[format]) + b"\n" * size


def large_archive(rng: random.Random, kind: str, size: int) -> bytes:
    """Return a native archive with a table of about some bytes, zeros or, in small ones, random numbers."""
    values = max(2, int((size / 4) ** 0.5))
    table = np.zeros((values, values), dtype=np.int32)
    if size < 1 << 22:
        table += np.random.default_rng(rng.randrange(99)).integers(0, 99, table.shape, dtype=np.int32)
    names = ("x", "y")
    return archive(kind, Problem(names, [values] * 2, names, (0, 1), (Factor.of((0, 1), table),)))


def _valid(data: bytes, format: str) -> bool:
    try:
        read(data, format)
    except DmcmcError:
        return False
    return True


def main() -> None:
    """Fuzz formats from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("formats", nargs="*", choices=[[], *SEEDS, *ARCHIVES])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compressed", type=int, help="memory budget in MiB for compressed files, which are read then")
    arguments = parser.parse_args()
    if arguments.compressed:
        for format in arguments.formats or [*(f for f in SEEDS if f != "ics"), *ARCHIVES]:
            valid, growth = run_compressed(format, arguments.count, arguments.compressed << 20, arguments.seed)
            print(f"{format}: {arguments.count} files, {valid} valid, peak {growth >> 20} MiB more", flush=True)
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")  # of parts of .ics files that are not understood
    for format in arguments.formats or [*SEEDS, *ARCHIVES]:
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
