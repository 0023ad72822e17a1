"""Rank programs of the experiments: they run on every rank, return plain data and assert nothing."""
