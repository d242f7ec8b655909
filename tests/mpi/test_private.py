"""Agents with private inputs: what each rank reads, what ranks send, and an answer equal to that of one file."""

import json
import pickle
import shutil
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from support.ranks import documents, in_turn, needs_mpirun, start
from support.runs import HurriedProgress, large_problem

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.anytime.solve_private import solve_directory
from dmcmc.cli.main import main
from dmcmc.compilation.run_components import RunComponents
from dmcmc.config.make_settings import settings_of
from dmcmc.files.document import Document
from dmcmc.formats import agent_files, native
from dmcmc.inference.dpop.pseudotree import complete_tree, neighbours_of
from dmcmc.inference.dpop.trees import depth_first
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.runtime.errors import FileError, OutOfTime, Unavailable
from dmcmc.samplers.local_search import local_search
from dmcmc.solving.planning import divided_problem
from dmcmc.solving.planning.rank_view import rank_view_of
from dmcmc.solving.private import private_inputs as rank_inputs

HIDDEN = (5, 7)  # sizes of hidden variables; shared ones have 3 values


def secret_problem(agents=5, seed=0):
    """Return agents in a ring, with numbers, names and labels that can be recognised in any data."""
    rng, variables_per_agent = np.random.default_rng(seed), 4
    n = agents * variables_per_agent
    domains = np.array([3, 3, *HIDDEN] * agents)
    inside = [
        (a * variables_per_agent + u, a * variables_per_agent + v)
        for a in range(agents)
        for v in range(variables_per_agent)
        for u in range(v)
    ]
    between = [(a * variables_per_agent, (a + 1) % agents * variables_per_agent + 1) for a in range(agents)]
    factors = [Factor.of(s, rng.integers(10**12, 2**43, domains[list(s)])) for s in inside]
    factors += [Factor.of(s, rng.integers(0, 10**12, domains[list(s)])) for s in between]
    factors += [Factor.of((), 5)]
    return Problem(
        variables=tuple(f"secret-name-{v}" for v in range(n)),
        domains=domains,
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=np.repeat(np.arange(agents), variables_per_agent),
        factors=tuple(factors[i] for i in rng.permutation(len(factors))),
        labels=tuple(tuple(f"secret-label-{v}-{x}" for x in range(domains[v])) for v in range(n)),
    )


def settings(**sections):
    return settings_of(Document("", sections))


@pytest.fixture
def folder(tmp_path):
    agent_files.write(secret_problem(), tmp_path / "parts", 1 << 30)
    return tmp_path / "parts"


def test_an_agents_file_has_its_own_variables_and_factors_and_those_that_it_shares(folder):
    problem, index = secret_problem(), agent_files.read_index(folder)
    for agent in range(problem.n_agents):
        part, known = agent_files.read_agent(folder, index, agent), index.known_variables(agent)
        owned = set(np.flatnonzero(problem.owner == agent).tolist())
        factors = [f for f in problem.factors if owned & set(f.scope)]
        assert [f.renamed(tuple(known[v] for v in f.scope), f.name) for f in part.factors] == factors
        assert set(known) == owned.union(*(f.scope for f in factors)) and len(known) < problem.n_variables
        for v, labels in zip(known, part.labels, strict=True):
            assert labels == (problem.labels[v] if v in owned else None)


def test_the_index_knows_shared_variables_only(folder):
    text = (folder / "index.json").read_text()
    index = json.loads(text)
    assert "secret" not in text
    assert set(index["sizes"]) == {str(4 * a + k) for a in range(5) for k in (0, 1)}
    assert all(size == 3 for size in index["sizes"].values())


@pytest.mark.parametrize("numbers", ["integers", "floats", "costs"])
def test_one_process_finds_the_answer_of_one_file(tmp_path, numbers):
    kind = {"integers": {}, "floats": {"floats": True}, "costs": {"sense": "min"}}[numbers]
    problem = _random(**kind)
    agent_files.write(problem, tmp_path, 1 << 30)
    config = settings(local={"method": "exact"}, combine={"rows": "all"}, seed=3)
    found, alone = solve_directory(tmp_path, config, share_assignment=True), dmcmc.solve(problem, config)
    for name in ("status", "objective", "bound", "gap", "violation", "assignment", "msg_count", "msg_size", "sense"):
        assert getattr(found, name) == getattr(alone, name), name


def _random(floats=False, sense="max"):
    rng, n = np.random.default_rng(4), 14
    scopes = [(v, v + 1) for v in range(n - 1)] + [(0, 5), (3, 9), (2, 11)]
    tables = [rng.random((3, 3)) if floats else rng.integers(0, 99, (3, 3)) for _ in scopes]
    factors = [Factor.of(s, t, sense) for s, t in zip(scopes, tables, strict=True)]
    names = tuple(f"x{v}" for v in range(n))
    return Problem(names, [3] * n, tuple("abcd"), [v // 4 for v in range(n)], tuple(factors), sense=sense)


def test_a_truncated_missing_or_foreign_file_is_refused_by_name(folder, tmp_path):
    index = agent_files.read_index(folder)
    whole = (folder / "agent-2.npz").read_bytes()
    (folder / "agent-2.npz").write_bytes(whole[:-100])
    with pytest.raises(FileError, match=r"agent-2\.npz: is damaged"):
        agent_files.read_agent(folder, index, 2)
    shutil.copy(folder / "agent-1.npz", folder / "agent-2.npz")
    with pytest.raises(FileError, match=r"agent-2\.npz: is damaged, or belongs to another"):
        solve_directory(folder, settings())
    (folder / "agent-2.npz").unlink()
    with pytest.raises(FileError, match=r"agent-2\.npz: no such file"):
        solve_directory(folder, settings())
    with pytest.raises(FileError, match="dmcmc split"):
        agent_files.read_index(tmp_path)
    (folder / "index.json").write_text('{"format": "dmcmc agents"}')
    with pytest.raises(FileError, match="is not the index"):
        agent_files.read_index(folder)


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_a_time_budget_is_used_unless_optimality_is_proven_earlier(folder, method, clock):
    best = dmcmc.solve(secret_problem(), local={"method": "exact"})
    config = settings(local={"method": method, "runs": 1, "samples": 2}, budget={"time": 600})
    found = solve_directory(
        folder, config, progress=HurriedProgress(clock, "improving", times=2), share_assignment=True
    )
    assert found.status == "optimal" or (found.status == "timeout" and method == "gibbs" and found.cycle > 1)
    assert found.objective <= best.objective <= found.bound and (found.status != "optimal" or found.time < 600)
    assert secret_problem().evaluate(found.assignment).objective == found.objective
    assert (
        found.trace[0].objective <= found.trace[-1].objective == found.objective and found.trace[-1].time <= found.time
    )


def test_a_time_limit_before_the_first_tables_gives_an_initial_assignment(folder, monkeypatch):
    def late(*arguments):
        raise OutOfTime("too late")

    monkeypatch.setattr("dmcmc.solving.rank_tables.first_tables", late)
    found = solve_directory(folder, settings(budget={"time": 5.0}), share_assignment=True)
    assert found.status == "timeout" and found.violation == 0 and found.bound is None
    assert secret_problem().evaluate(found.assignment).objective == found.objective


def test_a_time_limit_during_planning_gives_an_answer(folder, monkeypatch):
    def late(*_, **__):
        raise OutOfTime("too late")

    monkeypatch.setattr(rank_inputs, "plan", late)
    found = solve_directory(folder, settings(budget={"time": 5.0}), share_assignment=True)
    assert found.status == "timeout" and found.violation == 0
    assert secret_problem().evaluate(found.assignment).objective == found.objective


def test_a_session_without_compiled_kernels_answers_by_its_deadline(folder, monkeypatch):
    """No kernel of the plan and of the first search is ever ready."""

    def late(*_, **__):
        raise OutOfTime("methods were still being compiled")

    def never(*_, **__):
        raise AssertionError("a kernel was called")

    monkeypatch.setattr(rank_inputs, "plan", late)
    monkeypatch.setattr(RunComponents, "is_first_search_ready", lambda *_: False)
    monkeypatch.setattr(local_search, "choose_greedily", never)
    monkeypatch.setattr(local_search, "ascend", never)
    session = dmcmc.PrivateSession(folder, share_assignment=True)
    for _ in range(2):
        found = session.solve(5)
        assert found.status == "timeout" and found.violation == 0
        assert secret_problem().evaluate(found.assignment).objective == found.objective


def test_options_that_need_the_whole_problem_are_refused(folder):
    asked = ({"local": {"order": "o.txt"}}, {"search": "toulbar2"}, {"algorithm": "mgm"})
    for sections in asked:
        with pytest.raises(Unavailable, match=r"problem\.directory"):
            solve_directory(folder, settings(**sections))


@pytest.mark.parametrize("memory, scattered", [("1GiB", False), ("1MiB", True)])
def test_with_a_time_budget_a_problem_is_scattered_if_copies_would_take_much_memory(memory, scattered):
    world, problem = SimpleNamespace(size=4, local_size=4), large_problem()
    timed, untimed = ({"memory": memory} | time for time in ({"time": 1.0}, {}))
    assert divided_problem.is_scattered(problem, settings(budget=timed), world) == scattered
    assert divided_problem.is_scattered(problem, settings(budget=untimed), world)


RECORDED = """
import json, pickle, sys
from types import SimpleNamespace
import numpy as np
from dmcmc.files.document import Document
from dmcmc.compilation.run_components import RunComponents
from dmcmc.config.make_settings import settings_of
from dmcmc.formats import native
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.world import World, connect
from dmcmc.anytime.solve_private import solve_directory
from dmcmc.samplers import in_team
from dmcmc.samplers.contract import tuning

world, found, sent = connect(), {}, []
Mailbox.limit = 64
tuning.ENTRIES_PER_SENT = 0
in_team.tuning = SimpleNamespace(**vars(tuning) | {"MAX_COPIED_ENTRIES": 0, "FEW_ROWS": 0})


class Recorder:
    def __init__(self, comm):
        self.comm = comm

    def __getattr__(self, name):
        method = getattr(self.comm, name)

        def called(*arguments, **named):
            answer = method(*arguments, **named)  # first, since a received buffer has arbitrary contents before
            for argument in arguments:
                sent.append(bytes(argument) if isinstance(argument, np.ndarray) else pickle.dumps(argument))
            return Recorder(answer) if name == "Split" else answer

        return called


comm, world.comm = world.comm, Recorder(world.comm)
runs = [(sys.argv[1], "exact", "dpop"), (sys.argv[1], "gibbs", "dpop"), (sys.argv[3], "annealing", "dpop")]
runs += [(sys.argv[1], "exact", "shared"), (sys.argv[1], "gibbs", "shared"), (sys.argv[5], "split", "shared")]
for folder, method, mode in runs:
    sections = {"local": {"method": "gibbs" if method == "split" else method, "runs": 2, "samples": 9}, "seed": 5}
    sections["combine"] = {"method": "mini-bucket", "z": 2} if method == "split" else {}
    config = settings_of(Document("", {**sections, "combine": {"mode": mode, **sections["combine"]}}))
    result = solve_directory(folder, config, world)
    alone = solve_directory(folder, config, World()) if world.rank == 0 else None
    if world.rank == 0:
        names = ("status", "objective", "bound", "violation", "msg_count", "msg_size")
        if mode == "shared":  # the leader would need factors of others: the answer is that of messages
            names, method = names[:4], method + " shared"
            alone = solve_directory(folder, settings_of(Document("", sections)), World())
        found[method] = [[getattr(one, name) for name in names] for one in (result, alone)]
        found[method][0].append("team" in result.control)
        found[method][1].append(folder == sys.argv[3])

local = {"method": "gibbs", "runs": 1, "samples": 1}
solve_directory(sys.argv[1], settings_of(Document("", {"local": local, "budget": {"time": 0.5}})), world)

traffic = b"|".join(sent)
secrets = {"names": [b"secret-name"], "labels": [b"secret-label"], "tables": [], "domains": []}
for path in (sys.argv[4], sys.argv[2]):
    problem = native.load(path)
    for factor in problem.factors:
        if len({problem.owner[v] for v in factor.scope}) == 1:
            secrets["tables"] += [int(entry).to_bytes(6, "little") for entry in factor.table.ravel()]
    for agent in range(problem.n_agents):
        sizes = problem.domains[problem.owner == agent]
        secrets["domains"] += [sizes[-2:].tobytes(), pickle.dumps(tuple(sizes[-2:].tolist()))[-6:-2]]
leaks = {what: sum(one in traffic for one in many) for what, many in secrets.items()}
whole = pickle.dumps(problem)
seen = all(any(one in whole for one in many) for many in secrets.values())
leaks = comm.gather((leaks, len(sent), len(traffic), seen))
if world.rank == 0:
    print(json.dumps([found, leaks]))
"""


@needs_mpirun
def test_no_private_data_is_sent_between_ranks_and_the_answer_is_that_of_one_rank(folder, tmp_path):
    """All traffic of each rank is recorded: broadcasts, gathers, messages, and exchanges within teams."""
    few = secret_problem(agents=2, seed=1)
    agent_files.write(few, tmp_path / "few", 1 << 30)
    native.save(few, tmp_path / "few.npz")
    native.save(secret_problem(), tmp_path / "whole.npz")
    dense = dmcmc.generate("random", agents=5, variables_per_agent=4, domain_size=4, interface_variables=2, seed=5)
    agent_files.write(dense, tmp_path / "dense", 1 << 30)
    problems = (folder, tmp_path / "whole.npz", tmp_path / "few", tmp_path / "few.npz", tmp_path / "dense")
    done = start(3, "-c", RECORDED, *map(str, problems))
    assert done.returncode == 0, done.stderr
    found, leaks = json.loads(done.stdout)
    assert [method for method, (together, alone) in found.items() if together != alone] == []
    assert found["exact"][0][0] == found["exact shared"][0][0] == "optimal"
    assert [leak for leak, *_ in leaks] == [{"names": 0, "labels": 0, "tables": 0, "domains": 0}] * 3
    assert all(messages > 20 and size > 1000 and seen for _, messages, size, seen in leaks)


@needs_mpirun
def test_the_command_line_splits_and_solves(tmp_path):
    native.save(secret_problem(), tmp_path / "p.npz")
    assert main(["split", str(tmp_path / "p.npz"), str(tmp_path / "parts")]) == 0
    (tmp_path / "d.yaml").write_text("problem: {directory: parts}\nlocal: {method: exact}\n")
    (tmp_path / "parts" / "agent-1.npz").rename(tmp_path / "kept")
    lost = start(2, "-m", "dmcmc", "run", str(tmp_path / "d.yaml"))
    ours = [line for line in lost.stderr.splitlines() if line.startswith("dmcmc: ")]
    assert lost.returncode == 2 and len(ours) == 1 and "agent-1.npz: no such file" in ours[0]
    (tmp_path / "kept").rename(tmp_path / "parts" / "agent-1.npz")
    output = str(tmp_path / "out" / "run.json")
    (tmp_path / "f.yaml").write_text("problem: {file: p.npz}\nlocal: {method: exact}\n")
    commands = ["run", str(tmp_path / "d.yaml"), "--output", output], ["run", str(tmp_path / "f.yaml")]
    large = "from dmcmc.solving.planning import divided_problem; divided_problem.bytes_of_tables = lambda _: 1 << 30"
    done, found = documents(in_turn(2, *([*command, "--json"] for command in commands), before=large).stdout)
    assert done["assignment"] is None
    files = sorted((tmp_path / "out" / "run.agents").iterdir())
    parts = {k: v for file in files for k, v in json.loads(file.read_text())["assignment"].items()}
    assert len(files) == 5 and secret_problem().evaluate(parts).objective == done["objective"]
    assert "deal" in found["control"] and found["objective"] == done["objective"]
    assert secret_problem().evaluate(found["assignment"]).objective == found["objective"]


def test_the_common_view_of_all_agents_takes_few_bytes():
    agents = 500
    problem = dmcmc.generate("random", agents=agents, variables_per_agent=3, domain_size=2, global_density=0.0)
    index, _ = agent_files.split_by_agent(problem, 1 << 30)
    whole, division = rank_view_of(index, {})
    parent = depth_first(neighbours_of(whole, division), range(agents))
    known = pickle.dumps(index), pickle.dumps(complete_tree(whole, division, parent))
    tracemalloc.start()
    index, tree = map(pickle.loads, known)
    view = rank_view_of(index, {})
    assert len(view.division.locals) == len(tree.parent) == agents and sum(map(len, index.shared_factors)) == 2 * (
        agents - 1
    )
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 300 * agents  # some 1,600 each as tuples and dictionaries


def test_exact_agents_tables_are_not_copied_into_one_array(tmp_path, monkeypatch):
    agent_files.write(secret_problem(), tmp_path / "parts", 1 << 30)
    settings = settings_of(Document("", {"local": {"method": "exact"}}))
    first_result = solve_directory(tmp_path / "parts", settings)
    seen = []

    def flat(problem):
        seen.append(problem.n_variables)
        return flatten([f.scope for f in problem.factors], [f.table for f in problem.factors])

    monkeypatch.setattr(Problem, "flat", property(flat))
    result = solve_directory(tmp_path / "parts", settings)
    assert result.objective == first_result.objective and not seen
