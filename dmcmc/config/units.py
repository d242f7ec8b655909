"""Types of numbers and sizes in configurations, with their ranges and their descriptions for errors."""

import re
from fractions import Fraction
from typing import Annotated, Literal

from msgspec import Meta

MAX_COUNT = 2**31 - 1  # largest number of samples, rows and other counts
_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("B", 1000), ("IB", 1024))
    for power, prefix in enumerate("KMGT", start=1)
}


def bytes_of(text: str) -> int:
    """Return a size such as ``"8GiB"`` in bytes.

    Units are B, KB, MB, GB, TB, KiB, MiB, GiB and TiB; other texts raise a ``ValueError``.

    >>> bytes_of("1.5 KiB"), bytes_of("2MB"), bytes_of("77")
    (1536, 2000000, 77)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(text)
    return int(Fraction(match[1]) * _UNITS[match[2].upper()])


def bytes_or_auto(text: str) -> int | str:
    """Return a size in bytes, or the word ``auto``."""
    return text if text == "auto" else bytes_of(text)


Count = Annotated[int, Meta(ge=1, le=MAX_COUNT, description="a whole number >= 1 (and < 2^31)")]
Cells = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number >= 0 (and < 2^63)")]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number >= 0 (and < 2^63)")]
Memory = Annotated[
    Literal["auto"] | Annotated[int, Meta(ge=1, le=2**63 - 1)],
    Meta(description="auto, a size such as 8GiB, 500MB or a number of bytes", extra={"parse": bytes_or_auto}),
]
# Chains store temperatures as float32.
Positive = Annotated[float, Meta(ge=1e-30, le=1e30, description="a number > 0 (from 1e-30 to 1e30)")]
Weight = Annotated[
    Annotated[int, Meta(ge=0, le=2**62)] | Annotated[float, Meta(ge=0, le=1e30)],
    Meta(description="a number >= 0"),
]
Share = Annotated[float, Meta(gt=0, lt=1, description="a number between 0 and 1, both excluded")]
