"""XCSP 2.1 as FRODO has it."""
