"""Choose how an elimination is run: on which device (``backend``), and exactly or with mini-buckets."""
