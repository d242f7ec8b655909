"""A merged plan does what its single plans do."""

import numpy as np
from hypothesis import given, settings
from support.encoded_problems import batches

from dmcmc.inference.elimination.cuda.join_kernels import best_threshold, bucket_levels, group_buckets
from dmcmc.inference.elimination.eliminate import eliminate, merge_plans, mergeable, separated

MANY = settings(max_examples=40)


@given(batches())
@MANY
def test_a_merged_plan_makes_the_same_tables(batch):
    plans, flat, arithmetic = batch
    assert mergeable(plans)
    merged = merge_plans(plans)
    whole = eliminate(flat, merged.plan, arithmetic)
    start = 0
    for plan, numbers in zip(plans, merged.numbers, strict=True):
        given = plan.tables - plan.buckets
        alone = eliminate(flat.table_range(start, start + given), plan, arithmetic)
        start += given
        for t in range(plan.tables):
            one, other = alone.table(t), whole.table(int(numbers[t]))
            assert one.scope == other.scope and np.array_equal(one.values, other.values)
    assert merged.plan.cells == sum(plan.cells for plan in plans)
    assert sorted(merged.plan.remaining) == sorted(
        int(numbers[t]) for plan, numbers in zip(plans, merged.numbers, strict=True) for t in plan.remaining
    )


@given(batches())
@MANY
def test_a_batch_of_small_plans_makes_the_tables_of_single_runs(batch):
    plans, flat, arithmetic = batch
    merged, start = merge_plans(plans), 0
    together = separated(eliminate(flat, merged.contiguous_plan(plans), arithmetic), merged, plans)
    for plan, done in zip(plans, together, strict=True):
        given = plan.tables - plan.buckets
        alone = eliminate(flat.table_range(start, start + given), plan, arithmetic)
        start += given
        assert done.plan is plan and np.array_equal(done.arena, alone.arena)
        assert all(done.table(t).scope == alone.table(t).scope for t in range(plan.tables))


@given(batches())
@MANY
def test_plans_that_share_a_variable_are_not_merged(batch):
    plans, _, _ = batch
    assert not mergeable([]) and not mergeable([plans[0], *plans])


@given(batches())
@MANY
def test_buckets_of_a_wave_are_independent_and_waves_follow_messages(batch):
    plan = merge_plans(batch[0]).plan
    program, given = plan.program, plan.tables - plan.buckets
    everything = np.ones(plan.buckets, dtype=np.int64)
    level = bucket_levels(program.input_start, program.inputs, given, everything)
    for b in range(plan.buckets):
        made = [level[t - given] for t in plan.inputs(b) if t >= given]
        assert level[b] == max(made, default=-1) + 1


@given(batches())
@MANY
def test_the_cheapest_division_is_found(batch):
    plan = merge_plans(batch[0]).plan
    program, given = plan.program, plan.tables - plan.buckets
    thresholds, seconds = np.array([10, 3, 0]), []
    for threshold in thresholds:
        group, _ = group_buckets(program.variable, program.input_start, program.inputs, program.cells, given, threshold)
        waves = bucket_levels(program.input_start, program.inputs, given, group).max(initial=-1) + 1
        seconds.append(2.0 * program.cells[group != 1].sum() + 5.0 * waves)
    found, least = best_threshold(
        program.variable, program.input_start, program.inputs, program.cells, given, thresholds, 2.0, 5.0
    )
    assert least == min(seconds) and found == thresholds[seconds.index(least)]
