"""Reports of experiments (means, confidence intervals, tables, charts, a web page) and of single results."""
