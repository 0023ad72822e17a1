"""Implementations under test. A subject imports torch and the protocol only."""
