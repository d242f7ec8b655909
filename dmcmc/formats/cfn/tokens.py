"""The tokens of a ``.cfn`` file: brackets, optional names of fields, and decimal numbers."""

import re
from collections.abc import Collection
from typing import Any

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.tokens import Tokens, shown

PUNCTUATION = b"{}[]:"
_TOKEN = re.compile(rb'(?:[\s,]++|(?m:^)#[^\n]*+)|"([^"]*+)"|([{}\[\]:])|((?:(?!")[^\s{}\[\]:,])++)')
_NUMBER = re.compile(rb"([+-]?)(?=\.?\d)(\d{0,40})(?:\.(\d{0,40}))?")
_MAX_COST = 2**62  # limit for the absolute value of a cost, in units of the last decimal; headroom in int64
_MAX_BRACKET_DEPTH = 8  # levels of brackets in the parameters of a global cost function


class CfnTokens(Tokens):
    """The tokens of a ``.cfn`` file; square and curly brackets are the same."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__(source, _TOKEN)

    def opens(self) -> bool:
        """Return whether an opening bracket comes next."""
        return self.peek() in (b"{", b"[")

    def is_number(self) -> bool:
        """Return whether a decimal number comes next."""
        return _NUMBER.fullmatch(self.peek()) is not None

    def open(self) -> None:
        """Consume an opening bracket."""
        self.expect(b"{", b"[")

    def closed(self) -> bool:
        """Consume a closing bracket if it comes next, and return whether it did."""
        return self.skip(b"}", b"]")

    def close(self, what: str) -> None:
        """Consume a closing bracket, or fail with the name of what it should close."""
        if not self.closed():
            self.expected(f"a bracket that closes {what}", self.take())

    def section(self, name: bytes) -> None:
        """Consume the beginning of a section; its name may be omitted."""
        if not self.field(name) and not self.opens():
            self.expected(f"'{name.decode()}'", self.take())
        self.open()

    def skip_field(self, *names: bytes) -> bool:
        """Consume the name of a field, in quotes or not, if it comes next; return whether it did."""
        if self.peek() in names:
            self.take()
            return True
        return False

    def field(self, *names: bytes) -> bool:
        """Consume the name of a field and its colon, if the name comes next; return whether it did."""
        if not self.skip_field(*names):
            return False
        self.skip(b":")
        return True

    def scaled(self, token: bytes, decimals: int, what: str, limit: int | None = _MAX_COST) -> int:
        """Return a decimal number as an integer in units of the last decimal; further decimals are truncated."""
        match = _NUMBER.fullmatch(token)
        if match is None:
            self.expected(f"{what}: a decimal number", token)
        digits = match[2] + (match[3] or b"")[:decimals].ljust(decimals, b"0")
        number = int(digits or b"0") * (-1 if match[1] == b"-" else 1)
        if limit is not None and abs(number) > limit:
            self.fail(f"{what}: {shown(token)} with {decimals} decimals needs more than 62 bits")
        return number

    def items(self, depth: int, names: Collection[bytes] = ()) -> list[Any]:
        """Return the items up to the closing bracket: words, and lists for brackets.

        ``names`` are those that a colon may follow, and stay in the list; in inner brackets they are left out.
        """
        if depth > _MAX_BRACKET_DEPTH:
            self.fail(f"brackets more than {_MAX_BRACKET_DEPTH} deep")
        items: list[Any] = []
        while not self.closed():
            if self.skip(b":"):
                if not items or isinstance(items[-1], list):
                    self.fail("a colon without a name before it")
                if depth > 1:
                    items.pop()
                elif items[-1] not in names:
                    known = ", ".join(name.decode() for name in names)
                    self.fail(f"a colon after {shown(items[-1])}, which is no parameter; there are {known or 'none'}")
            elif self.skip(b"{", b"["):
                items.append(self.items(depth + 1))
            else:
                token = self.take()
                if not token and not self.quoted:
                    self.expected("a closing bracket", token)
                items.append(token)
        return items
