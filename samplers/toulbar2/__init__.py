"""toulbar2 (``pytoulbar2``, extra ``search``) as a search engine: in its own process, its answers checked by us."""
