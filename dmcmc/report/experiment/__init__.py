"""The report of an experiment: means and intervals, tables, charts, the page; and the page of a single result."""
