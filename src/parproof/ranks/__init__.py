"""Real process groups for tests: ranks that start fast, must all report, and never outlive the session."""

from parproof.ranks.context import RankContext
from parproof.ranks.failure import RankFailure, RankSkip
from parproof.ranks.pool import RankPool
from parproof.ranks.run import RankReport, Run

__all__ = ["RankContext", "RankFailure", "RankPool", "RankReport", "RankSkip", "Run"]
