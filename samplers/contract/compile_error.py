"""Make an error message for a sampler that Numba cannot compile."""

import inspect
import re
from pathlib import Path

from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.samplers.contract.protocol import Sampler


def explain(sampler: Sampler, error: Exception) -> ConfigError:
    """Return an error of one line: the sampler, the place in its file, and the reason that Numba gives."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Failed in")]
    sources = {Path(inspect.getsourcefile(f) or "").name for f in (sampler.init, sampler.step)}
    locations = [
        (path, line) for path, line in re.findall(r'File "([^"]+)", line (\d+)', text) if Path(path).name in sources
    ]
    where = f" ({locations[0][0]}:{locations[0][1]})" if locations else ""
    return ConfigError(f"local.method: sampler {sampler.name!r} does not compile{where}: {' '.join(lines[:2])}")
