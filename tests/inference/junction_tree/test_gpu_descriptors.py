"""Descriptors of messages for the GPU, carried out by a loop on the host, give the marginals of brute force."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.junction_tree.beliefs import evidence, tree_cases

from dmcmc.inference.junction_tree.cuda.descriptor_kernels import (
    AT,
    AXES,
    ELIMINATED,
    ENTRIES,
    FIRST_BLOCK,
    HEADER,
    HIGH,
    HIGH_AXES,
    HIGH_TABLES,
    INNER,
    LOW_TABLES,
    MATRIX,
    MESSAGES,
    NUMBER,
    OUTER_AXES,
    PART_AT,
    PARTS,
    PER_BLOCK,
    PER_THREAD,
    STEP,
    STRIDES,
    TABLE,
    TABLE_COUNTS,
    TABLES,
    describe_messages,
    kernel_for,
    levels_of,
    transposed,
)
from dmcmc.inference.junction_tree.message_kernels import DOWN, MARGINAL, UP

TILE = (4, 2, 2)  # threads per block, rows and columns per block of a matrix product, fewest rows or columns
KINDS = (UP, DOWN, MARGINAL)


class LoopDevice:
    """A device whose kernels are loops on the host: tables in the layout of the GPU, as utilities in float64."""

    def __init__(self, case, observed):
        self.case, layout = case, case.passes.layout
        self.program, self.neutral = layout.program, layout.entries
        self.program.observed[:] = [observed.get(v, -1) for v in range(case.domains.size)]
        self.arena = np.full(layout.entries + 1, -np.inf)
        factors = int(self.program.at[len(layout.factors)])
        self.arena[:factors] = naive.decoded(case.passes.arena[:factors], case.arithmetic).astype(float)
        self.arena[self.neutral] = 0.0
        self.reverse = transposed(self.program, case.tree.position)
        self.kinds = set()  # kinds of kernels that occurred

    def run(self, kind, cliques):
        """Carry out the launches of one pass; return the written tables in the order of the launches."""
        tables, written = self.program.at.size - 1, []
        descriptor, launches, parts, targets = describe_messages(
            self.program, self.reverse, kind, cliques, tables, self.neutral, TILE
        )
        part_ranges = []
        for width, kernel, table, blocks in launches.tolist():
            n = int(descriptor[table + MESSAGES])
            first = descriptor[table + FIRST_BLOCK : table + FIRST_BLOCK + n + 1].tolist()
            assert first[0] == 0 and first[-1] == blocks and all(b > a for a, b in pairwise(first))
            at = descriptor[table + FIRST_BLOCK + n + 1 :][:n].tolist()
            results = [self.compute(descriptor[a:], kernel, width) for a in at]
            for a, number_of_blocks, (target, places, values) in zip(at, np.diff(first).tolist(), results, strict=True):
                self.arena[places] = values  # after all messages of the launch, which are independent
                written.append(target)
                message_parts, entries = int(descriptor[a + PARTS]), int(descriptor[a + ENTRIES])
                part_at = int(descriptor[a + PART_AT])
                part_ranges.append((part_at, part_at + message_parts * entries))
                expected = {PER_THREAD: -(-entries // TILE[0]), PER_BLOCK: entries * message_parts}
                assert kernel == MATRIX or number_of_blocks == expected[kernel]
        assert sorted(written) == sorted(targets.tolist()) and len(set(written)) == len(written)
        ends = [0, *(end for _, end in sorted(part_ranges))]
        assert [begin for begin, _ in sorted(part_ranges)] == ends[:-1] and ends[-1] == parts
        return written

    def compute(self, descriptor, kernel, width):
        """Return the number of a message's table, the places of its entries, and their values."""
        self.kinds.add(kernel)
        axes, outer, count = (int(descriptor[i]) for i in (AXES, OUTER_AXES, TABLES))
        n_records = count if kernel == MATRIX or width == len(TABLE_COUNTS) else TABLE_COUNTS[width]
        sizes = descriptor[HEADER : HEADER + axes]
        eliminated = [*descriptor[HEADER + axes : HEADER + axes + outer], descriptor[INNER]]
        assert np.prod(sizes) == descriptor[ENTRIES] and np.prod(eliminated) == descriptor[ELIMINATED]
        length, start = STRIDES + axes + outer, HEADER + axes + outer
        records = [descriptor[start + r * length : start + (r + 1) * length] for r in range(n_records + 1)]
        assert all(r[NUMBER] == self.program.at.size - 1 for r in records[count:-1])  # the neutral table
        total = np.zeros((*sizes, *eliminated))
        for record in records[:-1]:
            total = total + self.arena[places(record, axes, sizes, eliminated)]
        if kernel == MATRIX:
            self.check_product(descriptor, records[:-1], axes)
        total = total.reshape(*sizes, -1)
        values = total.max(axis=-1) if self.case.maximise else np.logaddexp.reduce(total, axis=-1)
        target = places(records[-1], axes, sizes, [1] * len(eliminated))
        return int(descriptor[TABLE]), target.reshape(values.shape), values

    def check_product(self, descriptor, records, axes):
        """Check that no summed table of a matrix product depends on rows and on columns."""
        high, rows = int(descriptor[HIGH_AXES]), int(descriptor[HIGH])
        n_high, n_low = int(descriptor[HIGH_TABLES]), int(descriptor[LOW_TABLES])
        assert rows == np.prod(descriptor[HEADER : HEADER + high], dtype=int)
        assert min(rows, int(descriptor[ENTRIES]) // rows) >= TILE[2]
        for i, record in enumerate(records):
            strides = record[STRIDES : STRIDES + axes]
            depends_on_eliminated = bool(record[STEP] or record[STRIDES + axes :].any())
            assert depends_on_eliminated == (i < n_high + n_low)
            assert i >= n_high or not strides[high:].any()
            assert not n_high <= i < n_high + n_low or not strides[:high].any()


def places(record, axes, sizes, eliminated):
    """Return the place in the arena of each entry that a table contributes, one axis per target and eliminated axis."""
    strides = [*record[STRIDES : STRIDES + axes], *record[STRIDES + axes :], record[STEP]]
    at = np.full((1,) * len(strides), int(record[AT]))
    for axis, (size, stride) in enumerate(zip([*sizes, *eliminated], strides, strict=True)):
        shape = [1] * len(strides)
        shape[axis] = int(size)
        at = at + (np.arange(size) * stride).reshape(shape)
    return at


@settings(max_examples=80)
@given(st.data())
def test_descriptors_compute_messages_and_marginals_whatever_the_evidence(data):
    case = data.draw(tree_cases(wide=True))
    observed = data.draw(evidence(case))
    device, cliques = LoopDevice(case, observed), np.arange(len(case.tree.scopes))
    layout, domains = case.passes.layout, case.domains
    for kind in KINDS:
        order = cliques[::-1].copy() if kind == DOWN else cliques
        for target in device.run(kind, order):
            scope = layout.program.scope[layout.program.scope_start[target] : layout.program.scope_start[target + 1]]
            scope = scope[::-1].tolist() if device.reverse[target] else scope.tolist()
            entries = device.arena[layout.program.at[target] : layout.program.at[target + 1]]
            found = entries.reshape(domains[scope])
            expected = case.belief(scope, observed, homes(case, kind, target))
            consistent = tuple(observed.get(v, slice(None)) for v in scope)
            np.testing.assert_allclose(found[consistent], expected[consistent], atol=1e-9)


def homes(case, kind, target):
    """Return the cliques whose tables a message, or the table of a variable, combines."""
    layout, tree = case.passes.layout, case.tree
    if kind == UP:
        return case.subtree(target - layout.up_message(0))
    clique = target - layout.down_message(0) if kind == DOWN else int(layout.home[target - layout.marginal(0)])
    root = clique
    while tree.parent[root] >= 0:
        root = tree.parent[root]
    return case.subtree(root) - (case.subtree(clique) if kind == DOWN else set())


def test_every_kind_of_kernel_occurs():
    kinds = set()

    @settings(max_examples=40, derandomize=True, database=None)
    @given(tree_cases(wide=True, maximise=True))
    def run(case):
        device = LoopDevice(case, {})
        device.run(UP, np.arange(len(case.tree.scopes)))
        kinds.update(device.kinds)

    run()
    assert kinds == {PER_THREAD, PER_BLOCK, MATRIX}


@given(st.data(), st.sampled_from(KINDS))
def test_a_message_has_a_higher_level_than_the_messages_that_it_needs(data, kind):
    case = data.draw(tree_cases())
    count = len(case.tree.scopes)
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)), reverse=kind == DOWN))
    level = dict(zip(chosen.tolist(), levels_of(case.passes.layout.program, kind, chosen).tolist(), strict=True))
    for c in level:
        needed = {UP: case.tree.children[c], DOWN: [case.tree.parent[c]], MARGINAL: []}[kind]
        assert level[c] == 1 + max((level[d] for d in needed if d in level), default=-1)


@given(st.integers(0, 100))
def test_the_smallest_kernel_that_takes_all_tables_is_chosen(tables):
    k = kernel_for(tables)
    assert k == len(TABLE_COUNTS) or TABLE_COUNTS[k] >= tables
    assert k == 0 or TABLE_COUNTS[k - 1] < tables


@given(tree_cases())
def test_only_messages_are_stored_in_reverse_order(case):
    layout = case.passes.layout
    reverse = transposed(layout.program, case.tree.position)
    assert reverse.size == layout.program.at.size - 1
    assert not reverse[: len(layout.factors)].any() and not reverse[layout.marginal(0) :].any()
