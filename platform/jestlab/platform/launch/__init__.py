"""Launching: attempts at runs as work units of XManager, on this machine or on pods, needed runs first."""
