"""Run the command line with ``python -m dmcmc``; modules in the working directory are not loaded, as by ``dmcmc``."""

import os
import sys

try:
    here = os.getcwd()
except OSError:  # the working directory was deleted; then it is not on the path
    here = ""
if not sys.flags.safe_path and sys.path[0] in ("", here):
    del sys.path[0]  # which ``-m`` put there

from dmcmc.cli.main import main

sys.exit(main())
