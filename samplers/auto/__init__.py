"""The decision of ``local.method: auto``: counted work per method, and the rates of this machine."""
