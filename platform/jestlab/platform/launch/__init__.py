"""Launching: XManager work units as processes of this machine, walked in the order of their needs."""
