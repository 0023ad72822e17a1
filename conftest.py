"""Loads the plugin, and pytest's own tester for the selfchecks."""

pytest_plugins = ["parproof.plugin", "pytester"]
