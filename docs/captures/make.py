"""Capture the output of commands on a terminal of 80 columns and 24 rows: ``python docs/captures/make.py [NAME ...]``.

Captures are stored as text in this folder, and together as the page ``docs/captures.md``.

Each command runs on a pseudo-terminal of that size. A capture is the final text of the screen with the lines that have
scrolled out of it. Progress lines that were overwritten are stored once.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COLUMNS, ROWS = 80, 24
_ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
_LARGE = "dmcmc run configs/large.yaml --timeout 20"
CAPTURES: Mapping[str, tuple[str, str]] = {  # the command, and the text on the screen at which Ctrl-C is sent
    "cold": ("dmcmc run configs/meetings.yaml", ""),
    "explain": ("dmcmc run configs/meetings.yaml --explain", ""),
    "interrupted": (_LARGE, "local tables"),
}


TITLES = {
    "cold": "The first run: kernels are compiled",
    "explain": "Choices and their reasons",
    "interrupted": "Interrupted by Ctrl-C",
}
HEAD = """# What a terminal shows

Captured on a terminal of 80 columns by `python docs/captures/make.py`. Lines that begin with `~` are progress lines
that were overwritten while the program worked.
"""


class Screen:
    """A minimal terminal: lines can be written, overwritten and erased."""

    def __init__(self) -> None:
        self.lines, self.row, self.column = [""], 0, 0
        self.seen: list[str] = []

    def feed(self, text: str) -> None:
        """Process the output of a program."""
        place = 0
        while place < len(text):
            found = _ESCAPE.match(text, place)
            if found:
                self._obey(found[2], found[1])
                place = found.end()
                continue
            self._put(text[place])
            place += 1

    def _put(self, sign: str) -> None:
        if sign == "\n":
            self.row += 1
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif sign == "\r":
            self.column = 0
        elif sign.isprintable():
            if self.column == COLUMNS:
                self._put("\n")
                self.column = 0
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + sign + line[self.column + 1 :]
            self.column += 1

    def _obey(self, command: str, numbers: str) -> None:
        count = int(numbers) if numbers.isdigit() else 1
        if command == "A":
            self.row = max(0, self.row - count)
        elif command == "K":
            erased = self.lines[self.row].rstrip()
            if erased and (not self.seen or _words(self.seen[-1]) != _words(erased)):
                self.seen.append(erased)
            self.lines[self.row] = "" if numbers == "2" else self.lines[self.row][: self.column]


def _words(line: str) -> str:
    """Return a progress line without its bar and clock."""
    return re.sub(r"\s*[━╸╺].*$", "", line)


def capture(command: str, until: str, environment: Mapping[str, str]) -> tuple[list[str], list[str], float]:
    """Run a command; return its screen, the overwritten progress lines, and the seconds that it took."""
    screen, start = Screen(), time.perf_counter()
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(ROOT)
        os.execvpe("bash", ["bash", "-c", f"exec {command}"], {**environment, "TERM": "xterm", "LC_ALL": "C.UTF-8"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    interrupted = not until
    while True:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        if not interrupted and any(until in line for line in screen.lines):
            os.kill(process, signal.SIGINT)
            interrupted = True
        if not ready:
            continue
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not data:
            break
        screen.feed(data.decode("utf-8", "replace"))
    os.waitpid(process, 0)
    return screen.lines, screen.seen, time.perf_counter() - start


def main(names: list[str]) -> None:
    """Make captures, one text file each; the capture ``cold`` has an empty kernel cache."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for name in names or list(CAPTURES):
        command, until = CAPTURES[name]
        with tempfile.TemporaryDirectory() as empty:
            environment = {**os.environ, "PATH": path, "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
            if name == "cold":
                environment["XDG_CACHE_HOME"] = empty
            lines, seen, seconds = capture(command, until, environment)
        text = [f"$ {command}", *(f"~ {line}" for line in seen), *lines]
        print(f"{name}: {seconds:.1f} s", file=sys.stderr)
        content = "\n".join(line.rstrip() for line in text).rstrip("\n") + "\n"
        (HERE / f"{name}.txt").write_text(content, encoding="utf-8")
    texts = {name: (HERE / f"{name}.txt").read_text(encoding="utf-8") for name in CAPTURES}
    page = HEAD + "".join(f"\n## {TITLES[name]}\n\n```text\n{text}```\n" for name, text in texts.items())
    (HERE.parent / "captures.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
