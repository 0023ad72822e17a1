"""Seals: an in-toto statement over an evidence directory, signed in a DSSE envelope. What it proves: docs/evidence.md."""
