"""The division of an elimination between CPU and GPU, and the descriptors of its launches, checked by loops."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.encoded_problems import problems

from dmcmc.inference import tuning
from dmcmc.inference.elimination.cuda import join_kernels as w
from dmcmc.inference.elimination.cuda.descriptor_kernels import (
    choose_lows,
    describe_buckets,
    merge_axes,
    wave_tables,
)
from dmcmc.inference.elimination.cuda.eliminate import divide_work
from dmcmc.inference.elimination.cuda.join_kernels import ANY, LARGE, MAX_BOTH_TABLES, bucket_levels, group_buckets
from dmcmc.inference.elimination.cuda.waves import Waves, split_large_launches, split_launch
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets

HEIGHTS, WIDTH = np.array([2, 3, 1, 2, 1, 4]), 2  # rows and columns of a tile, by the number of the kernel
THRESHOLDS = st.sampled_from([0, 4, 12, 40, 10**6])


@st.composite
def plans(draw):
    """Draw encoded tables, a plan that eliminates some variables, exactly or with mini-buckets, and the arithmetic."""
    flat, plan, arithmetic = draw(problems())
    if draw(st.booleans()):
        eliminated = set(plan.program.variable.tolist())
        keep, order = sorted(set(range(6)) - eliminated), plan.program.variable.tolist()
        z = least_z(flat.scopes(), order) + draw(st.integers(0, 1))
        plan = plan_mini_buckets(flat.scopes(), plan.program.domains, order, keep, z)
    return flat, plan, arithmetic


def made_by(plan, t):
    """Return the bucket whose message a table is; −1 for an input table."""
    return t - (plan.tables - plan.buckets) if t >= plan.tables - plan.buckets else -1


def groups(plan, threshold):
    p = plan.program
    return group_buckets(p.variable, p.input_start, p.inputs, p.cells, plan.tables - plan.buckets, threshold)


@settings(max_examples=60)
@given(plans(), THRESHOLDS)
def test_groups_follow_each_other_and_hold_the_large_buckets_and_those_between_them(case, threshold):
    _, plan, _ = case
    group, consumer = groups(plan, threshold)
    variable, cells = plan.program.variable, plan.program.cells
    for b in range(plan.buckets):
        makers = [made_by(plan, t) for t in plan.inputs(b) if made_by(plan, t) >= 0]
        assert all(consumer[c] == b for c in makers)
        assert all(group[c] <= group[b] and (group[c] == 0 or group[b] > 0) for c in makers)
        siblings = np.flatnonzero(variable == variable[b])
        assert set(group[siblings].tolist()) == {group[b]}
        if (cells[siblings] >= threshold).any():
            assert group[b] == 1
        elif group[b] == 1:  # it lies between two buckets of the GPU
            assert any(group[made_by(plan, t)] == 1 for s in siblings for t in plan.inputs(s) if made_by(plan, t) >= 0)
            assert any(consumer[s] >= 0 and group[consumer[s]] == 1 for s in siblings)
        assert group[b] != 2 or any(
            group[made_by(plan, t)] for s in siblings for t in plan.inputs(s) if made_by(plan, t) >= 0
        )
    used = {made_by(plan, t) for b in range(plan.buckets) for t in plan.inputs(b)}
    assert all(consumer[b] == -1 for b in range(plan.buckets) if b not in used)


@settings(max_examples=60)
@given(plans(), THRESHOLDS)
def test_the_divided_plan_makes_the_same_tables(case, threshold):
    flat, plan, arithmetic = case
    hybrid = divide_work(plan, threshold)
    assert divide_work(plan, threshold) is hybrid
    expected, found = eliminate(flat, plan, arithmetic), eliminate(flat, hybrid.plan, arithmetic)
    for t in range(plan.tables):
        one, other = expected.table(t), found.table(int(hybrid.renumbered[t]))
        assert one.scope == other.scope and np.array_equal(one.values, other.values)
    assert [int(hybrid.renumbered[t]) for t in plan.remaining] == list(hybrid.plan.remaining)
    assert (hybrid.plan.cells, hybrid.plan.entries) == (plan.cells, plan.entries)


@settings(max_examples=60)
@given(plans(), THRESHOLDS, st.sampled_from([1, 5, 1 << 60]))
def test_one_copy_uploads_what_the_gpu_reads_and_one_downloads_what_the_cpu_reads(case, threshold, min_resident):
    _, plan, _ = case
    hybrid = divide_work(plan, threshold, min_resident)
    divided, device = hybrid.plan, range(hybrid.first, hybrid.last)
    places = [range(*divided.locations[t][2:]) for t in range(divided.tables)]
    ends = sorted((place.start, place.stop) for place in places)
    assert ends[0][0] == 0 and ends[-1][1] == divided.entries
    assert all(a[1] == b[0] for a, b in pairwise(ends))  # tables are disjoint and leave no gap

    def within(t, begin, end):
        return begin <= places[t].start and places[t].stop <= end

    for b in range(divided.buckets):
        on_device, output = b in device, divided.output(b)
        for t in (*divided.inputs(b), output):
            if on_device:
                made_on_device = made_by(divided, t) in device
                assert within(t, hybrid.device_begin, hybrid.device_end)
                assert within(t, hybrid.device_begin, hybrid.upload_end) or made_on_device
            else:
                assert within(t, 0, hybrid.host_entries)
        assert not on_device or within(output, hybrid.upload_end, hybrid.device_end)
    for t in divided.remaining:
        stays = made_by(divided, t) in device and divided.sizes[t] >= min_resident
        assert within(t, hybrid.download_end, hybrid.device_end) if stays else within(t, 0, hybrid.host_entries)
    read_on_device = {t for b in device for t in divided.inputs(b) if made_by(divided, t) < 0}
    assert set(hybrid.device_inputs) == read_on_device


def described(plan):
    """Return the descriptors of all buckets and their positions, with the GPU's choice of rows."""
    program = plan.program._replace(row_axes=plan.program.row_axes.copy())
    choose_lows(program, 0, plan.buckets)
    return describe_buckets(program, 0, plan.buckets, 0)


@settings(max_examples=60)
@given(plans())
def test_descriptors_carried_out_by_a_loop_make_the_messages(case):
    flat, plan, arithmetic = case
    done, (meta, positions) = eliminate(flat, plan, arithmetic), described(plan)
    for b, at in enumerate(positions.tolist()):
        header = meta[at : at + w.HEADER]
        x_size, axes = int(header[w.DOMAIN]), int(header[w.HIGH_AXES] + header[w.LOW_AXES])
        counts = header[w.HIGH_TABLES : w.BOTH_TABLES + 1].tolist()
        sizes = meta[at + w.HEADER : at + w.HEADER + axes]
        high, low = sizes[: header[w.HIGH_AXES]], sizes[header[w.HIGH_AXES] :]
        assert (header[w.ROWS], header[w.WIDTH]) == (np.prod(high, dtype=int), np.prod(low, dtype=int))
        assert sum(counts) == len(plan.inputs(b)) and counts[2] <= MAX_BOTH_TABLES
        total = np.zeros((x_size, *sizes), dtype=np.int64)
        for k in range(sum(counts)):
            record = meta[at + w.HEADER + axes + k * (w.STRIDES + axes) :][: w.STRIDES + axes]
            strides = record[w.STRIDES :]
            if k < counts[0]:
                assert not strides[high.size :].any()
            elif k < counts[0] + counts[1]:
                assert not strides[: high.size].any()
            place = np.full((1,) * (1 + axes), int(record[w.OFFSET]))
            for axis, (size, stride) in enumerate(zip((x_size, *sizes), (record[w.X_STRIDE], *strides), strict=True)):
                shape = [1] * (1 + axes)
                shape[axis] = int(size)
                place = place + (np.arange(size) * stride).reshape(shape)
            total = np.maximum(total + done.arena[place], arithmetic.lowest)
        message = done.table(plan.output(b)).values.reshape(-1)
        assert header[w.MESSAGE] == plan.locations[plan.output(b)].begin
        best = total.max(axis=0).reshape(-1)
        assert naive.same_numbers(naive.decoded(best, arithmetic), naive.decoded(message, arithmetic))


@settings(max_examples=60)
@given(st.lists(st.integers(1, 4), max_size=5), st.integers(0, 2**32), st.integers(0, 3))
def test_merged_axes_visit_the_same_addresses_in_the_same_order(sizes, seed, tables):
    rng = np.random.default_rng(seed)
    strides = np.zeros((tables, len(sizes)), dtype=np.int64)
    for t in range(tables):
        step = 1
        for j in reversed(range(len(sizes))):
            if rng.random() < 0.7:
                strides[t, j], step = step, step * sizes[j]
    merged_sizes, merged_strides = merge_axes(np.array(sizes, dtype=np.int64), strides)
    assert merged_sizes.size <= len(sizes)

    def addresses(axes, steps):
        return [steps @ np.array(index, dtype=np.int64) for index in np.ndindex(*axes)]

    np.testing.assert_array_equal(addresses(sizes, strides), addresses(merged_sizes, merged_strides))


def launches_of(plan, max_sums=10**6, enough_blocks=3):
    """Return the launches of all buckets, their levels, the descriptors, and their positions."""
    meta, positions = described(plan)
    p, everything = plan.program, np.ones(plan.buckets, dtype=np.int64)
    level = bucket_levels(p.input_start, p.inputs, plan.tables - plan.buckets, everything)
    tables, launches, sums, start = wave_tables(meta, positions, level, HEIGHTS, WIDTH, 16, max_sums, enough_blocks)
    joined = Waves(np.concatenate([meta, tables]), launches, sums, start, np.zeros(len(launches)))
    return joined, dict(zip(positions.tolist(), level.tolist(), strict=True))


def members(descriptors, table):
    """Return the buckets of a launch by the positions of their descriptors, and their first blocks with the end."""
    n = int(descriptors[table + w.BUCKETS])
    first = descriptors[table + w.FIRST_BLOCK : table + w.FIRST_BLOCK + n + 1].tolist()
    return descriptors[table + w.AFTER + n : table + w.AFTER + 2 * n].tolist(), first


@settings(max_examples=60)
@given(plans(), st.sampled_from([1, 60, 10**6]), st.integers(1, 5))
def test_a_wave_prepares_and_joins_each_of_its_independent_buckets_once(case, max_sums, enough_blocks):
    _, plan, _ = case
    joined, level = launches_of(plan, max_sums, enough_blocks)
    meta, seen, last_level, wave = joined.descriptors, {True: Counter(), False: Counter()}, 0, []
    for kernel, table, blocks in joined.launches.tolist():
        buckets, first = members(meta, table)
        assert first[0] == 0 and first[-1] == blocks and all(a < b for a, b in pairwise(first))
        assert len({level[b] for b in buckets}) == 1 and level[buckets[0]] >= last_level
        last_level = level[buckets[0]]
        seen[kernel < 0].update(buckets)
        if kernel < 0:
            wave = buckets
            check_workspaces(joined, wave)
            assert len(wave) == 1 or used_sums(meta, wave) <= max_sums
            continue
        assert set(buckets) <= set(wave)
        for b, n_blocks in zip(buckets, np.diff(first).tolist(), strict=True):
            down, across = -(-meta[b + w.ROWS] // HEIGHTS[kernel]), -(-meta[b + w.WIDTH] // WIDTH)
            assert 1 <= meta[b + w.TILES] <= across and n_blocks == down * -(-across // meta[b + w.TILES])
            n_both = meta[b + w.BOTH_TABLES]
            assert kernel in ((0, LARGE) if n_both == 0 else (n_both, ANY) if n_both < ANY else (ANY,))
    assert set(seen[True].values()) <= {1} and seen[True] == seen[False] == Counter(level.keys())


def used_sums(meta, wave):
    return sum(int(meta[b + w.DOMAIN] * (meta[b + w.ROWS] + meta[b + w.WIDTH])) for b in wave)


def check_workspaces(joined, wave):
    """Check that the parts of the workspaces of a wave's buckets are disjoint and fit."""
    meta, sums, starts = joined.descriptors, [], []
    for b in wave:
        x_size, rows, width, both = (int(meta[b + i]) for i in (w.DOMAIN, w.ROWS, w.WIDTH, w.BOTH_TABLES))
        sums += [(meta[b + w.HIGH_SUMS], x_size * rows), (meta[b + w.LOW_SUMS], x_size * width)]
        starts += [(meta[b + w.ROW_STARTS], both * rows), (meta[b + w.COLUMN_STARTS], both * width)]
    for parts, entries in ((sums, joined.sums), (starts, joined.start)):
        parts.sort()
        assert all(a + size <= b for (a, size), (b, _) in pairwise(parts))
        assert parts[-1][0] + parts[-1][1] <= entries


def blocks_of(joined):
    """Return the number of times that each block of each bucket runs, by kernel, bucket and block of the bucket."""
    count = Counter()
    for kernel, table, blocks in joined.launches.tolist():
        buckets, first = members(joined.descriptors, table)
        for block in range(blocks):
            i = max(i for i in range(len(buckets)) if first[i] <= block)
            count[kernel, buckets[i], block - first[i]] += 1
    return count


@settings(max_examples=60)
@given(plans(), st.sampled_from([1, 7, 30, 10**9]))
def test_split_launches_run_every_block_once_and_stay_below_the_limit(case, limit):
    joined, _ = launches_of(case[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "LAUNCH_CELLS", limit)
        split = split_large_launches(joined)
    expected = blocks_of(joined)
    assert blocks_of(split) == expected and set(expected.values()) <= {1}
    assert split.cells.size == len(split.launches)
    assert split.cells.sum() == pytest.approx(case[1].cells)
    assert all(cells <= limit or blocks == 1 for cells, (_, _, blocks) in zip(split.cells, split.launches, strict=True))


@given(st.integers(1, 200), st.floats(0, 1e14))
def test_the_parts_of_a_launch_are_consecutive(blocks, cells):
    parts = split_launch(blocks, cells)
    assert parts[0][0] == 0 and sum(count for _, count in parts) == blocks
    assert all(a + count == b for (a, count), (b, _) in pairwise(parts))
    assert cells <= tuning.LAUNCH_CELLS or all(
        count * cells / blocks <= tuning.LAUNCH_CELLS or count == 1 for _, count in parts
    )
