"""Mini-bucket elimination: plans whose messages have at most z variables, moment matching, content-based partitions."""
