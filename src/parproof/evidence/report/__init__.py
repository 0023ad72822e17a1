"""`parproof report`: evidence for people, as one page that needs nothing else, and as Markdown for a CI summary."""

from parproof.evidence.report.contents import Contents, collect
from parproof.evidence.report.gather import Evidence, gather
from parproof.evidence.report.page import html
from parproof.evidence.report.summary import markdown
from parproof.evidence.report.words import LANGUAGES, Words
from parproof.evidence.report.writing import check_new, write_new

__all__ = [
    "LANGUAGES",
    "Contents",
    "Evidence",
    "Words",
    "check_new",
    "collect",
    "gather",
    "html",
    "markdown",
    "write_new",
]
