"""The ledger: communication a rank was seen to do. It never imports the cost model."""

from parproof.ledger.rows import Row

__all__ = ["Row"]
