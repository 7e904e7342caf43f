"""Simulations of whole studies, by `python -m tests.simulation`; each module simulates one kind."""
