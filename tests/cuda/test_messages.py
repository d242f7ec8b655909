"""Junction trees on a GPU give the CPU's marginals; runs under Numba's simulator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config
from support.problem_strategies import random_problem

from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.junction_tree.cuda import message_kernels, passes
from dmcmc.inference.junction_tree.cuda.matrix_kernels import matrix_kernel
from dmcmc.inference.junction_tree.cuda.passes import CudaPasses
from dmcmc.inference.junction_tree.cuda.sparse_passes import CudaSparsePasses
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.inference.runtime.errors import ProblemError

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


@pytest.fixture(autouse=True)
def all_work_runs_on_the_gpu(monkeypatch):
    monkeypatch.setattr(Backend, "worth_gpu", lambda self, seconds: self.device == "cuda")


def trees(problem, maximise=False, tables="dense"):
    alone, shared = (JunctionTree(problem, maximise, device=device, tables=tables) for device in ("cpu", "cuda"))
    assert isinstance(shared._tables.passes, CudaPasses if tables == "dense" else CudaSparsePasses)
    return alone, shared


def answers(tree):
    try:
        return tree.total(), tree.marginals()
    except ProblemError as error:
        return str(error)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), hard=st.sampled_from([0.0, 0.3]), maximise=st.booleans())
def test_marginals_are_those_of_the_cpu_whatever_is_observed(seed, hard, maximise):
    problem = random_problem(seed, variables=5, domain=3, factors=6, magnitude=3, hard=hard, floats=not maximise)
    alone, shared = trees(problem, maximise)
    rng = np.random.default_rng(seed)
    for count in (0, 2):
        evidence = {problem.variables[v]: 0 for v in rng.permutation(problem.n_variables)[:count].tolist()}
        for tree in (alone, shared):
            tree.set_evidence(evidence)
        expected, found = answers(alone), answers(shared)
        assert isinstance(shared._tables.passes, CudaPasses)
        if maximise or isinstance(expected, str):
            assert found == expected
        else:
            assert found[0] == pytest.approx(expected[0], abs=1e-9)
            assert found[1] == {name: pytest.approx(row, abs=1e-9) for name, row in expected[1].items()}


@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), hard=st.sampled_from([0.3, 0.7]), maximise=st.booleans())
def test_sparse_cliques_have_the_marginals_of_the_cpu(seed, hard, maximise):
    problem = random_problem(seed, variables=5, domain=3, factors=6, magnitude=3, hard=hard, floats=not maximise)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmcmc.inference.tuning.CHUNK_SIZE", 2)  # so that results of chunks are reduced in several levels
        alone, shared = trees(problem, maximise, "incomplete")
    rng = np.random.default_rng(seed)
    for count in (0, 2):
        evidence = {problem.variables[v]: 0 for v in rng.permutation(problem.n_variables)[:count].tolist()}
        for tree in (alone, shared):
            tree.set_evidence(evidence)
        expected, found = answers(alone), answers(shared)
        if maximise or isinstance(expected, str):
            assert found == expected
        else:
            assert found[0] == pytest.approx(expected[0], abs=1e-12)
            assert found[1] == {name: pytest.approx(row, abs=1e-12) for name, row in expected[1].items()}


@pytest.mark.parametrize("maximise", [False, True])
def test_messages_are_computed_as_matrix_products(monkeypatch, maximise):
    made = []
    monkeypatch.setattr(passes, "matrix_kernel", lambda *kind: made.append(kind) or matrix_kernel(*kind))
    rng, builder, sizes = np.random.default_rng(2), Problem.build(), [5, 3, 9, 4, 6, 5]
    if not config.ENABLE_CUDASIM:
        sizes = [45, 33, 69, 32, 40, 37]
    names = [builder.variable(f"v{i}", size) for i, size in enumerate(sizes)]
    for i in range(len(names)):
        for j in range(i + 1, min(i + 3, len(names))):
            values = rng.integers(-9, 9, (sizes[i], sizes[j])) * (1 if maximise else 0.3)
            builder.factor((names[i], names[j]), np.where(rng.random(values.shape) < 0.1, -np.inf, values))
    alone, shared = trees(builder.problem(), maximise)
    for evidence in ({}, {"v1": 1}):
        for tree in (alone, shared):
            tree.set_evidence(evidence)
        expected, found = alone.marginals(), shared.marginals()
        assert isinstance(shared._tables.passes, CudaPasses)
        if maximise:
            assert (shared.total(), found) == (alone.total(), expected)
        else:
            assert shared.total() == pytest.approx(alone.total(), abs=1e-12)
            assert found == {name: pytest.approx(row, abs=1e-12) for name, row in expected.items()}
    assert made


@pytest.mark.skipif(not config.ENABLE_CUDASIM, reason="kernels keep the size of a block")
def test_blocks_compute_parts_of_entries(monkeypatch):
    for module in (message_kernels, passes):
        monkeypatch.setattr(module, "THREADS", 2)
    rng, builder = np.random.default_rng(0), Problem.build()
    names = [builder.variable(f"v{i}", 6) for i in range(4)]
    for scope in (names[:3], names[1:]):
        builder.factor(scope, rng.random((6, 6, 6)))
    for maximise in (False, True):
        alone, shared = trees(builder.problem(), maximise)
        assert shared.total() == pytest.approx(alone.total())
        assert isinstance(shared._tables.passes, CudaPasses)
        for name in names:
            assert shared.marginal(name) == pytest.approx(alone.marginal(name))


def test_products_that_could_underflow_are_computed_on_the_cpu():
    builder = Problem.build()
    for i in range(3):
        builder.variable(f"v{i}", 2)
    for i in range(2):
        builder.factor((f"v{i}", f"v{i + 1}"), [[0.0, -700.0], [-700.0, -1.0]])
    alone, shared = trees(builder.problem())
    assert shared.marginals() == alone.marginals()
    assert not isinstance(shared._tables.passes, CudaPasses)
