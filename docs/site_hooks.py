"""Hooks of `mkdocs build`: show Sphinx roles in docstrings (``:func:`x```) as code."""

import re
from typing import Any

_ROLE = re.compile(r":(?:mod|func|class|meth|attr|data|exc|obj):<code>[~.]*([^<]*)</code>")


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with ``:role:`name``` replaced by the name as code."""
    return _ROLE.sub(r"<code>\1</code>", html)
