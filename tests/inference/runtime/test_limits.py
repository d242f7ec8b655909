"""A process knows what it may take: the least of the machine, its container and its own limits."""

import os
import resource
from pathlib import Path
from types import SimpleNamespace

import proclimits
import pytest

from dmcmc.inference.runtime import memory, threads
from dmcmc.inference.runtime.kernel_cache import cache_root


@pytest.fixture(autouse=True)
def forgotten():
    """Limits are read anew before and after each test."""
    for known in (memory._machine, threads._container_cores):
        known.cache_clear()
    yield
    for known in (memory._machine, threads._container_cores):
        known.cache_clear()


@pytest.fixture
def container(monkeypatch):
    """A function that puts this process into a container on a machine of 64 GiB."""

    def limit(memory=None, cores=None):
        budget = None if memory is None else SimpleNamespace(limit=memory, available=memory // 4)
        monkeypatch.setattr(proclimits, "get_memory_budget", lambda: budget)
        monkeypatch.setattr(proclimits, "get_machine_memory_bytes", lambda: 64 << 30)
        monkeypatch.setattr(proclimits, "get_cpu_limit", lambda: cores)

    return limit


@pytest.fixture
def unlimited(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.fixture
def system(monkeypatch):
    """A function that says what Linux calls available, and this process's address space."""

    def has(available=None, mapped=0):
        monkeypatch.setattr(memory, "_available", lambda: available)
        monkeypatch.setattr(memory, "_mapped", lambda: mapped)

    return has


def test_a_container_may_have_less_than_its_machine(container, unlimited):
    container(memory=1 << 30)
    assert memory.process_memory() == 1 << 30
    assert memory.memory_limit() == 1 << 30


def test_without_a_container_the_machine_is_the_limit(container, unlimited):
    container()
    assert memory.process_memory() == 64 << 30
    assert memory.memory_limit() == memory.MOST_BYTES


def test_the_limit_of_the_address_space_counts(container, monkeypatch):
    container(memory=8 << 30)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (2 << 30, 4 << 30))
    assert memory.memory_limit() == 2 << 30


def test_nothing_known_is_no_limit(container, unlimited, monkeypatch):
    container()
    monkeypatch.setattr(proclimits, "get_machine_memory_bytes", lambda: None)
    assert memory.process_memory() is None
    assert memory.memory_limit() == memory.MOST_BYTES


@pytest.mark.parametrize(
    ("inside", "available", "expected"),
    [(None, 40 << 30, 40 << 30), (16 << 30, 40 << 30, 4 << 30), (16 << 30, 1 << 30, 1 << 30), (None, None, 64 << 30)],
)
def test_what_is_free_is_the_least_of_machine_and_container(container, unlimited, system, inside, available, expected):
    container(memory=inside)
    system(available)
    assert memory.free_memory() == expected


def test_what_an_address_space_holds_already_is_not_free(container, system, monkeypatch):
    container()
    system(40 << 30, mapped=1 << 30)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (3 << 30, 4 << 30))
    assert memory.free_memory() == 2 << 30


def test_linux_says_what_is_available_and_resident():
    free, held = memory.free_memory(), memory.resident_memory()
    assert 0 < free < memory.process_memory()
    assert 1 << 20 < held < 1 << 40


@pytest.mark.parametrize(("share", "expected"), [(None, 4), (2.0, 2), (1.5, 2), (0.2, 1), (16.0, 4)])
def test_cores_are_those_of_the_container(container, monkeypatch, share, expected):
    container(cores=share)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert threads.cores() == expected


def test_the_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/where")
    assert cache_root() == Path("/some/where/dmcmc")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root().name == "dmcmc" and cache_root().is_absolute()
