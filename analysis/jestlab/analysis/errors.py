"""Errors that users can fix. Any other exception of this portion, a ValueError of pandas too, is a bug."""

from __future__ import annotations


class RequestError(ValueError):
    """A request that can't be answered. The message is one line with the reason and the remedy."""


class NotYet(RequestError):
    """The experiment has no results for a table or figure so far."""
