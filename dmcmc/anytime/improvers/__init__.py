"""Provide the improvers: each one estimates the cost and gain of its work, and does the work that it gets time for."""
