"""Objectives in levels (lexicographic): one objective, weighted so that an earlier level always counts more."""
