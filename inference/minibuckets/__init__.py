"""Mini-buckets: eliminations of bounded width, moment matching, and content-based partitions."""
