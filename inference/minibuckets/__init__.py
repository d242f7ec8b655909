"""Mini-buckets: eliminations of bounded width, moment matching, content-based partitions."""
