"""``python -m dmcmc``."""

import sys

from dmcmc.cli import main

sys.exit(main())
