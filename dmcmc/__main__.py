"""Run the command line with ``python -m dmcmc``."""

import sys

from dmcmc.cli.main import main

sys.exit(main())
