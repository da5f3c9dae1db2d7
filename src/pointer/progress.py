"""How work that takes long tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int | None], None]
"""Called with the phase, how much of it is done, and how much there is (None: unknown)."""
BETWEEN_LINES = 30.0
"""Seconds between two lines about it, where there is no terminal for a bar."""
