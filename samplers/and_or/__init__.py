"""AND/OR branch and bound with mini-bucket heuristics and caching."""
