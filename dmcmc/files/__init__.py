"""Files whatever their format: opening and unpacking within limits, doubtful archives, atomic writing."""
