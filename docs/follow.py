"""Run the ``sh`` and ``python`` blocks of a page one after the other, in an empty folder.

``python docs/follow.py docs/tutorial.md`` stops at the first command that fails.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the code blocks of a page as pairs (language, text)."""
    return [(found[1], found[2]) for found in _BLOCK.finditer(text)]


def follow(page: Path, folder: str) -> None:
    """Run the blocks of a page in a folder; raise CalledProcessError for the first that fails."""
    for kind, text in blocks(page.read_text(encoding="utf-8")):
        print(text, flush=True)
        command = ["bash", "-ec", text] if kind == "sh" else [sys.executable, "-c", text]
        subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            follow(Path(name), folder)
