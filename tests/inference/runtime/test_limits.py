"""The limits of a process are the minimum over the machine, its container and its own limits."""

import io
import os
import resource
from types import SimpleNamespace

import proclimits
import pytest

from dmcmc.inference.runtime import memory, threads
from dmcmc.inference.tuning import MAX_TABLE_BYTES


@pytest.fixture(autouse=True)
def clear_cached_limits():
    """Clear the cached limits before and after each test."""
    for limit in (memory._machine, threads._container_cores):
        limit.cache_clear()
    yield
    for limit in (memory._machine, threads._container_cores):
        limit.cache_clear()


@pytest.fixture
def container(monkeypatch):
    """Return a function that simulates a container with limits, on a machine with 64 GiB."""

    def limit(memory=None, cores=None):
        budget = None if memory is None else SimpleNamespace(limit=memory, available=memory // 4)
        monkeypatch.setattr(proclimits, "get_memory_budget", lambda: budget)
        monkeypatch.setattr(proclimits, "get_machine_memory_bytes", lambda: 64 << 30)
        monkeypatch.setattr(proclimits, "get_cpu_limit", lambda: cores)

    return limit


@pytest.fixture
def unlimited(monkeypatch):
    """Simulate a process without limits of its resources."""
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.fixture
def system(monkeypatch):
    """Return a function that sets the available memory and the address space that Linux reports."""

    def report(available=None, mapped=0):
        text = "" if available is None else f"MemTotal: 1 kB\nMemAvailable: {available >> 10} kB\n"
        pages = f"{mapped // os.sysconf('SC_PAGE_SIZE')} 1 1"
        monkeypatch.setattr(memory, "open", lambda path, mode: io.BytesIO(text.encode()), raising=False)
        monkeypatch.setattr(os, "pread", lambda descriptor, size, offset: pages.encode())

    return report


def test_the_limit_of_the_container_applies_if_it_is_below_the_machine(container, unlimited):
    container(memory=1 << 30)
    assert memory.process_memory() == 1 << 30
    assert memory.memory_limit() == 1 << 30


def test_without_a_container_the_machine_is_the_limit(container, unlimited):
    container()
    assert memory.process_memory() == 64 << 30
    assert memory.memory_limit() == MAX_TABLE_BYTES


def test_the_limit_of_the_address_space_counts(container, monkeypatch):
    container(memory=8 << 30)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (2 << 30, 4 << 30))
    assert memory.memory_limit() == 2 << 30


def test_without_known_limits_the_process_is_unlimited(container, unlimited, monkeypatch):
    container()
    monkeypatch.setattr(proclimits, "get_machine_memory_bytes", lambda: None)
    assert memory.process_memory() is None
    assert memory.memory_limit() == MAX_TABLE_BYTES


@pytest.mark.parametrize(
    ("inside", "available", "expected"),
    [(None, 40 << 30, 40 << 30), (16 << 30, 40 << 30, 4 << 30), (16 << 30, 1 << 30, 1 << 30), (None, None, 64 << 30)],
)
def test_free_memory_is_the_minimum_of_machine_and_container(container, unlimited, system, inside, available, expected):
    container(memory=inside)
    system(available)
    assert memory.free_memory() == expected


def test_mapped_memory_reduces_the_free_address_space(container, system, monkeypatch):
    container()
    system(40 << 30, mapped=1 << 30)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (3 << 30, 4 << 30))
    assert memory.free_memory() == 2 << 30


def test_linux_reports_available_and_resident_memory():
    free, held = memory.free_memory(), memory.resident_memory()
    assert 0 < free < memory.process_memory()
    assert 1 << 20 < held < 1 << 40


@pytest.mark.parametrize(("share", "expected"), [(None, 4), (2.0, 2), (1.5, 2), (0.2, 1), (16.0, 4)])
def test_cores_are_limited_by_the_container(container, monkeypatch, share, expected):
    container(cores=share)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert threads.cores() == expected
