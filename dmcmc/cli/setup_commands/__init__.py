"""Commands around the first use: ``init``, ``completion`` and ``warm-up``."""
