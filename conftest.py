"""Loads the plugin; nothing else."""

pytest_plugins = ["parproof.plugin"]
