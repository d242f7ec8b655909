"""Bucket elimination on an NVIDIA GPU: division of work, waves of launches, batches, and streaming of large buckets."""
