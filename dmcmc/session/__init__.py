"""Sessions: solve a problem that changes again and again, and keep the work that stays valid."""
