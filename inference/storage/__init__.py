"""Files that outlive a run: atomic writing, checksums, and the folder for compiled kernels and measured rates."""
