"""Whether what is held is what was taken: the store by digests, the catalogue by the store, a share by the source.

Nothing is changed here but that the catalogue is brought up to date, as by all who read it. What is found is told with
what to do about it; ``catalogue.repairing`` does that.
"""

from catalogue.checking.comparing import differing, start_of
from catalogue.checking.findings import EMPTY, LOST, REPAIR, Checked, Finding, Share, told_next
from catalogue.checking.looking import Check, crawl_of

__all__ = [
    "EMPTY",
    "LOST",
    "REPAIR",
    "Check",
    "Checked",
    "Finding",
    "Share",
    "crawl_of",
    "differing",
    "start_of",
    "told_next",
]
