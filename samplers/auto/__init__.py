"""What `local.method: auto` compares: the work of every way, counted, and the rates of this machine."""
