"""The pytest plugin: `pytest_plugins = ["parproof.plugin"]` in a conftest is all it needs.

Inert: importing it imports neither torch nor anything that does; nothing is written unless asked; there are
no autouse fixtures. One concern a module.
"""

pytest_plugins = [
    "parproof.plugin.options",
    "parproof.plugin.collection",
    "parproof.plugin.lanes",
    "parproof.plugin.subjects",
    "parproof.plugin.control",
    "parproof.plugin.ranks",
    "parproof.plugin.mutants",
    "parproof.plugin.nonconformances",
    "parproof.plugin.evidence",
    "parproof.plugin.writing",
    "parproof.plugin.timing",
]
