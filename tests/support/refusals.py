"""What readers say of files that they refuse."""

import pytest

from dmcmc.formats import registry
from dmcmc.inference.runtime.errors import DmcmcError


def refusal(text, format):
    """The message, without the name of the text."""
    with pytest.raises(DmcmcError) as caught:
        registry.parse(text.encode(), format)
    return str(caught.value).removeprefix("text: ")
