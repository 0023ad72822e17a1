"""`parproof audit`: derive everything again from an evidence directory alone, and name what does not hold."""

from parproof.evidence.audit.demanding import require_sound
from parproof.evidence.audit.findings import Finding, Unusable, rules
from parproof.evidence.audit.run import AuditResult, audit, records

__all__ = ["AuditResult", "Finding", "Unusable", "audit", "records", "require_sound", "rules"]
