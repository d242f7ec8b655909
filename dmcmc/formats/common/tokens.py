"""Split a file into words and punctuation, each with its byte offset."""

import re
from collections.abc import Iterator
from typing import NoReturn

from dmcmc.files.text import OBJECTS_PER_CHECK, SourceFile
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_SHOWN_BYTES = 40  # bytes of a token that an error message shows


class Tokens:
    """Stream of the tokens of a file, with one token of lookahead; several readers use it.

    Parameters
    ----------
    source
        The file.
    pattern
        Matches one token by its first participating group, or skipped text (no group). Text that it does not match is
        an error.

    Attributes
    ----------
    source : SourceFile
        The file.
    quoted : bool
        Whether the last token taken was in double quotes.
    """

    def __init__(self, source: SourceFile, pattern: re.Pattern[bytes]) -> None:
        """Start at the first token."""
        self.source = source
        self.quoted = False
        self._ahead: tuple[bytes, int, bool] | None = None
        self._stream = self._matches(pattern)
        self._offset = 0

    def _matches(self, pattern: re.Pattern[bytes]) -> Iterator[tuple[bytes, int, bool]]:
        """Yield each token with its byte offset and whether it is in double quotes."""
        data = self.source.data
        at = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
        for i, match in enumerate(pattern.finditer(data, at)):
            if not i % OBJECTS_PER_CHECK:
                MEMORY_ACCOUNT.check("the words of the text")
            if match.start() != at:
                break
            at = match.end()
            if match.lastindex is not None:
                yield match[match.lastindex], match.start(), match[0].startswith(b'"')
        if at < len(data):
            raise self.source.error(at, f"unexpected {shown(data[at : at + 1])}")

    def peek(self) -> bytes:
        """Return the next token without consuming it; empty at the end of the file."""
        if self._ahead is None:
            self._ahead = next(self._stream, None) or (b"", len(self.source.data.rstrip()), False)
        return self._ahead[0]

    def peek_quoted(self) -> bool:
        """Return whether the next token is in double quotes."""
        self.peek()
        return self._ahead is not None and self._ahead[2]

    def take(self) -> bytes:
        """Consume and return the next token; empty at the end of the file."""
        token = self.peek()
        if self._ahead is not None:
            _, self._offset, self.quoted = self._ahead
            self._ahead = None
        return token

    def word(self, what: str, punctuation: bytes = b"{}[]();,|:") -> str:
        """Consume a name, or fail with ``what`` was expected, or if the name is not UTF-8."""
        token = self.take()
        if not self.quoted and (not token or token in punctuation):
            self.expected(what, token)
        try:
            return token.decode("utf-8")
        except UnicodeDecodeError:
            self.fail("is not UTF-8 text")

    def expect(self, *tokens: bytes) -> bytes:
        """Consume one of several tokens, or fail."""
        token = self.take()
        if token not in tokens or self.quoted:
            self.expected(" or ".join(f"'{t.decode()}'" for t in tokens), token)
        return token

    def skip(self, *tokens: bytes) -> bool:
        """Consume the next token if it is one of those given and not quoted; return whether it was."""
        if self.peek() in tokens and self.peek() and not self.peek_quoted():
            self.take()
            return True
        return False

    def expected(self, what: str, token: bytes) -> NoReturn:
        """Raise the error that another token was expected in place of the last one taken."""
        self.fail(f"expected {what}, {'got ' + shown(token) if token or self.quoted else 'but the file ends'}")

    def fail(self, message: str) -> NoReturn:
        """Raise an error at the place of the last token taken."""
        raise self.source.error(self._offset, message)

    @property
    def offset(self) -> int:
        """Byte offset of the last token taken."""
        return self._offset


def shown(token: bytes) -> str:
    """Return a token in the form that error messages show."""
    return ascii(token[:_MAX_SHOWN_BYTES].decode("utf-8", "replace"))
