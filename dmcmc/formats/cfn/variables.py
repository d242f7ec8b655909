"""The variables of a network in a ``.cfn`` file."""

import re
from typing import NamedTuple

from dmcmc.formats.cfn.tokens import PUNCTUATION, CfnTokens
from dmcmc.formats.common.tokens import shown
from dmcmc.inference.model.problem import Label

_INDEX = re.compile(rb"\d{1,18}")
_INTEGER = re.compile(rb"[+-]?\d{1,18}")


class _CfnDomain(NamedTuple):
    """A variable's domain size, and the index of each value by its name (empty if the values have no names)."""

    size: int
    names: dict[str, int]


class CfnVariables:
    """The variables of a network and their values, by name or index.

    Parameters
    ----------
    tokens : CfnTokens
        The tokens of the file.

    Attributes
    ----------
    index : dict of str to int
        Index of each variable by its name.
    """

    def __init__(self, tokens: CfnTokens) -> None:
        self._tokens = tokens
        self.index: dict[str, int] = {}
        self._domains: list[_CfnDomain] = []

    @property
    def sizes(self) -> list[int]:
        """The domain size of each variable."""
        return [domain.size for domain in self._domains]

    @property
    def labels(self) -> tuple[tuple[Label, ...] | None, ...]:
        """The labels of each variable's values; None if they have no names."""
        return tuple(tuple(domain.names) or None for domain in self._domains)

    def name(self, v: int) -> str:
        """Return the name of a variable."""
        return list(self.index)[v]

    def read(self) -> None:
        """Read a variable: its name, if any, and its values or their number."""
        tokens, index = self._tokens, len(self._domains)
        name = f"x{index}"
        if not tokens.opens() and not _INTEGER.fullmatch(tokens.peek()):
            name = tokens.word("a variable", PUNCTUATION)
            tokens.skip(b":")
        if name in self.index:
            tokens.fail(f"variable {name!r} is declared twice")
        self.index[name] = index
        if tokens.opens():
            tokens.open()
            names: dict[str, int] = {}
            while not tokens.closed():
                label = tokens.word("a value", PUNCTUATION)
                if label in names:
                    tokens.fail(f"variable {name!r}: value {label!r} occurs twice")
                names[label] = len(names)
            if not names:
                tokens.fail(f"variable {name!r}: has no values")
            self._domains.append(_CfnDomain(len(names), names))
            return
        token = tokens.take()
        if not _INTEGER.fullmatch(token) or int(token) == 0:
            tokens.expected(f"variable {name!r}: its values or their number", token)
        if int(token) < 0:
            raise tokens.source.refusal(tokens.offset, f"variable {name!r}: interval variables are")
        self._domains.append(_CfnDomain(int(token), {}))

    def index_of(self, what: str, name: str) -> int:
        """Return the index of a variable given by its name or its index."""
        v = self.index.get(name)
        if v is None and _INDEX.fullmatch(name.encode()):
            v = int(name)
        if v is None or v >= len(self._domains):
            self._tokens.fail(f"{what}: variable {name!r} is not declared")
        return v

    def value(self, v: int, token: bytes, what: str) -> int:
        """Return the index of a value given by its name or its index."""
        values = self._domains[v]
        index = values.names.get(token.decode("utf-8", "replace"))
        if index is None and _INDEX.fullmatch(token):
            index = int(token)
        if index is None or index >= values.size:
            self._tokens.fail(f"{what}: {shown(token)} is not a value of variable {self.name(v)!r}")
        return index
