"""What later versions bring. It is refused by name, with what to use instead, and stands in no help text."""

from typing import Any

from dmcmc.inference.runtime.errors import Unavailable

ANY = object()

# (dotted key, value or ANY, advice)
_SETTINGS: tuple[tuple[str, Any, str], ...] = (("combine.mode", "shared", "use combine.mode: dpop"),)


def refuse_setting(place: str, key: tuple[str, ...], value: Any) -> None:
    """Raise :class:`Unavailable` if a configuration's key, or this value of it, belongs to a later version."""
    for dotted, refused, advice in _SETTINGS:
        if ".".join(key) != dotted:
            continue
        if refused is ANY:
            raise Unavailable(f"{place}: is not available in this version; {advice}")
        if value == refused:
            raise Unavailable(f"{place}: {value!r} is not available in this version; {advice}")
