"""Conformance and evidence suite for the parallel mechanisms of torch.distributed.

Importing this package imports neither torch nor pytest.
"""

__version__ = "0.1.0"
