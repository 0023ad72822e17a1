"""Loads the plugin, the check of markers against the registry, and pytest's own tester for the selfchecks."""

pytest_plugins = ["parproof.plugin", "parproof.plugin.registered", "pytester"]
