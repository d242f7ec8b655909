"""Sparse rows made on a GPU are those of the CPU, bit by bit; runs under Numba's simulator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.encoded_problems import first_bucket, queries

from dmcmc import Factor
from dmcmc.inference.elimination.plan import EliminationQuery
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.choose_processor import RowsOnGpu, rows_on_gpu
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.device import Device, gpu_problem
from dmcmc.inference.sparse.bucket_rows import RowBuilder
from dmcmc.inference.sparse.cuda import extend_rows
from dmcmc.inference.sparse.cuda.extend_rows import GpuRowExtender, RowsExceedDevice
from dmcmc.inference.sparse.function_filtering import FunctionFiltering, MiniBucketRelaxation
from dmcmc.inference.sparse.join_steps import RowLimits, steps_of

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


@pytest.fixture(autouse=True, scope="module")
def no_size_is_small():
    patch = pytest.MonkeyPatch()
    patch.setattr(extend_rows, "MAX_ROWS_PER_LAUNCH", 11)
    patch.setattr(extend_rows, "ROWS_PER_BLOCK", 1)
    yield
    patch.undo()


def making_of(query, listed, threshold=None):
    bucket, _ = first_bucket(query, listed)
    scope, steps = steps_of(bucket, MiniBucketRelaxation(query.domains, query.arithmetic, 1))
    threshold = query.arithmetic.forbidden_below if threshold is None else threshold
    return RowBuilder(scope, steps, int(query.domains[bucket.variable]), query.arithmetic, threshold, RowLimits(10**6))


@settings(max_examples=6, deadline=None, derandomize=True)
@given(queries(), st.integers(0, 255), st.sampled_from([None, -5]))
def test_a_message_has_the_rows_of_the_cpu(query, listed, threshold):
    if query.arithmetic.exact is False and threshold is not None:
        threshold = float(threshold)
    alone, shared = making_of(query, listed, threshold), making_of(query, listed, threshold)
    expected = alone.resume(1)
    ranges = shared.cut_ranges(NO_DEADLINE)
    begin, end = (ranges[0][0], ranges[-1][1]) if ranges else (0, 0)
    rows = GpuRowExtender(shared, Device(1 << 20), 1 << 20).carry(begin, end, shared.start, NO_DEADLINE)
    keys, values = (np.concatenate([block[k] for block in rows] or [[]]) for k in (0, 1))
    np.testing.assert_array_equal(keys, expected.keys)
    np.testing.assert_array_equal(values, expected.values)
    assert shared.row_steps.row_limits.step_rows == alone.row_steps.row_limits.step_rows


class Always(RowsOnGpu):
    def worth(self, seconds):
        return True


@settings(max_examples=2, deadline=None, derandomize=True)
@given(queries(kinds=("whole",)))
def test_an_elimination_finds_the_same_optimum(query):
    expected = FunctionFiltering(query, None, 1, 1 << 20, dense=0)
    shared = FunctionFiltering(query, None, 1, 1 << 20, dense=0)
    shared.row_device = Always(Backend("cuda"))
    answer, other = expected.resume(), shared.resume()
    assert answer.utility == other.utility
    assert (answer.values is None) == (other.values is None)
    assert [m.rows for m in expected.messages] == [m.rows for m in shared.messages]


def test_tables_that_exceed_the_device_are_processed_on_the_cpu():
    tables = [EncodedTable((0, v), np.zeros((2, 2), dtype=np.int32)) for v in (1, 2)]
    query = EliminationQuery(tables, np.full(3, 2), range(3), (), Arithmetic(np.dtype(np.int32), -(2**29), 9))
    with pytest.raises(RowsExceedDevice):
        GpuRowExtender(making_of(query, 255), Device(1000), 1000)
    assert rows_on_gpu(Backend("cpu")) is None


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_all_kernels_are_loaded_beforehand(dtype, launches):
    whole = dtype == "int64"
    arithmetic = Arithmetic(np.dtype(dtype), -(2**61) if whole else -np.inf, 10**6)
    same, rng = np.where(np.eye(3, dtype=np.bool_), 1.0, -np.inf), np.random.default_rng(0)
    scopes = [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (3, 4)]
    tables = [Factor.of(s, same if s[0] < 2 else rng.integers(0, 9, (3, 3))) for s in scopes]
    query = EliminationQuery([arithmetic.encode(factor) for factor in tables], np.full(5, 3), range(5), (), arithmetic)
    work = FunctionFiltering(query, None, 1, 1 << 20, dense=0)
    work.row_device = Always(Backend("cuda"))
    loaded, launched = launches
    extend_rows.load_kernels(arithmetic)
    work.resume()
    assert launched and launched <= loaded
