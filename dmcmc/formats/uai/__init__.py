"""Networks in the format of the UAI competitions (`.uai`)."""
