"""`parproof compare`: two sides of equal workload and hardware, and what may be decided from their difference."""

from parproof.evidence.compare.document import Options, compare
from parproof.evidence.compare.factors import Incomparable
from parproof.evidence.compare.varies import Varies

__all__ = ["Incomparable", "Options", "Varies", "compare"]
