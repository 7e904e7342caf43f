"""What the programs that compute with the models import."""

from __future__ import annotations

IMPORTS = ("jestlab.models.training", "grain", "simplejpeg", "sentencepiece", "sqlalchemy.dialects.sqlite")
"""What takes long to import, of all that trains, embeds or diagnoses. Not PyArrow, which starts a thread."""
