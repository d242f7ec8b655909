"""Invalid parameters of a generator are refused by name before anything is allocated."""

import math

import pytest

from dmcmc.generators import registry
from dmcmc.inference.runtime.errors import ConfigError, ResourceError


@pytest.mark.parametrize(
    ("family", "parameters", "start", "words"),
    [
        ("random", {"agents": -3}, "agents: must be at least 1, not -3", ()),
        ("random", {"agents": 0}, "agents: ", ()),
        ("random", {"agents": "ten"}, "agents: must be an integer", ("'ten'",)),
        ("random", {"agents": 2.0}, "agents: must be an integer", ()),
        ("random", {"agents": True}, "agents: must be an integer", ()),
        ("random", {"agents": None}, "agents: must be an integer", ()),
        ("random", {"agents": 10**40}, "agents: must be at most", ()),
        ("random", {"seed": -1}, "seed: must be at least 0", ()),
        ("random", {"local_density": 1.01}, "local_density: must be between 0 and 1, not 1.01", ()),
        ("random", {"global_density": math.nan}, "global_density: ", ("nan",)),
        ("random", {"interface_variables": 11}, "interface_variables: ", ("variables_per_agent (10)", "11")),
        ("random", {"variable_per_agent": 3}, "variable_per_agent: ", ("'variables_per_agent'", "domain_size")),
        ("meeting-scheduling", {"tables": "soft"}, "tables: must be one of", ("uniform", "preferences", "hard")),
        ("grid", {"columns": 0}, "columns: must be at least 1", ()),
        ("torus", {"rows": 2}, "rows: must be at least 3, not 2", ()),
        ("torus", {"columns": 2}, "columns: must be at least 3, not 2", ()),
        ("spin-glass", {"rows": 2}, "rows: must be at least 3, not 2", ()),
        ("small-world", {"nodes": 8, "neighbours": 4}, "neighbours: ", ("nodes (8)", "4")),
        ("grid", {"agents": 101}, "agents: must be at most", ("100",)),
    ],
)
def test_an_invalid_parameter_is_named_first(family, parameters, start, words):
    with pytest.raises(ConfigError) as caught:
        registry.generate(family, parameters)
    message = str(caught.value)
    assert message.startswith(start) and all(word in message for word in words), message
    assert "\n" not in message


def test_an_unknown_family_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="did you mean 'grid'") as caught:
        registry.generate("grids", {})
    assert all(name in str(caught.value) for name in registry.names())


@pytest.mark.parametrize(
    ("family", "parameters"),
    [
        ("meeting-scheduling", {"agents": 10**14, "variables_per_agent": 10}),
        ("meeting-scheduling", {"domain_size": 10**6}),
        ("random", {"agents": 2**62, "variables_per_agent": 2**62, "domain_size": 2**62}),
        ("random-network", {"nodes": 10**15}),
        ("scale-free", {"nodes": 10**15}),
        ("grid", {"rows": 10**15}),
        ("torus", {"rows": 10**15}),
        ("spin-glass", {"rows": 10**15}),
        ("small-world", {"nodes": 10**15}),
    ],
)
def test_problems_that_exceed_the_memory_are_refused_before_allocation(family, parameters):
    with pytest.raises(ResourceError, match=r"too large: .* variables"):
        registry.generate(family, parameters)
