"""Collectives that this subject does not provide: capability pattern → reason. No torch here."""

LACKS: dict[str, str] = {}
