"""Errors that users can fix. Any other exception of this portion, a ValueError of pandas too, is a bug."""

from __future__ import annotations


class RequestError(ValueError):
    """A request that can't be answered as it is; the message, one line, says why and what to do."""


class NotYet(RequestError):
    """The experiment lacks what a table or figure shows; it may have it later."""
