"""Several good assignments of one problem: the k best ones, or diverse ones."""
