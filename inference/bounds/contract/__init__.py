"""Protocols of bound providers, and the requests that are made to them."""
