"""Words and punctuation of a file, one after the other, each with its place."""

import re
from collections.abc import Iterator
from typing import NoReturn

from dmcmc.files.text import Source

_SHOWN = 40  # bytes of a word that an error shows


class Tokens:
    """The tokens of a file.

    Parameters
    ----------
    source
        The file.
    pattern
        Matches one token, in its first group that takes part, or what is skipped (no group). What it does not match is
        an error.

    Attributes
    ----------
    quoted : bool
        Whether the last token taken stood in double quotes.
    """

    def __init__(self, source: Source, pattern: re.Pattern[bytes]) -> None:
        self.source = source
        self.quoted = False
        self._ahead: tuple[bytes, int, bool] | None = None
        self._stream = self._matches(pattern)
        self._offset = 0

    def _matches(self, pattern: re.Pattern[bytes]) -> Iterator[tuple[bytes, int, bool]]:
        data, at = self.source.data, 0
        for match in pattern.finditer(data):
            if match.start() != at:
                break
            at = match.end()
            if match.lastindex is not None:
                yield match[match.lastindex], match.start(), match[0].startswith(b'"')
        if at < len(data):
            raise self.source.error(at, f"unexpected {shown(data[at : at + 1])}")

    def peek(self) -> bytes:
        """Return the next token without taking it; empty at the end of the file."""
        if self._ahead is None:
            self._ahead = next(self._stream, None) or (b"", len(self.source.data.rstrip()), False)
        return self._ahead[0]

    def peek_quoted(self) -> bool:
        """Return whether the next token stands in double quotes."""
        self.peek()
        return self._ahead is not None and self._ahead[2]

    def take(self) -> bytes:
        """Return the next token; empty at the end of the file."""
        token = self.peek()
        if self._ahead is not None:
            _, self._offset, self.quoted = self._ahead
            self._ahead = None
        return token

    def word(self, what: str, punctuation: bytes = b"{}[]();,|:") -> str:
        """Take a name."""
        token = self.take()
        if not self.quoted and (not token or token in punctuation):
            self.expected(what, token)
        return token.decode("utf-8", "replace")

    def expect(self, *tokens: bytes) -> bytes:
        """Take one of some tokens."""
        token = self.take()
        if token not in tokens or self.quoted:
            self.expected(" or ".join(f"'{t.decode()}'" for t in tokens), token)
        return token

    def skip(self, *tokens: bytes) -> bool:
        """Take the next token if it is one of some, and say whether it was."""
        if self.peek() in tokens and self.peek():
            self.take()
            return True
        return False

    def expected(self, what: str, token: bytes) -> NoReturn:
        """Raise the error for the last token taken."""
        self.fail(f"expected {what}, {'got ' + shown(token) if token or self.quoted else 'but the file ends'}")

    def fail(self, message: str) -> NoReturn:
        """Raise an error for the place of the last token taken."""
        raise self.source.error(self._offset, message)

    @property
    def offset(self) -> int:
        """Where the last token taken starts."""
        return self._offset


def shown(token: bytes) -> str:
    """Return a token as an error shows it."""
    return ascii(token[:_SHOWN].decode("utf-8", "replace"))
