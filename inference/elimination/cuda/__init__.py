"""Bucket elimination on an NVIDIA GPU: which buckets go there, waves, batches, streaming beyond its memory."""
