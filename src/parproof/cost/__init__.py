"""Formulas: bytes, calls, times. No torch; a prediction meets a ledger only inside a check."""
