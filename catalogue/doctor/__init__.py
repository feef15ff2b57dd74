"""What a source and an installation are like, and what each of that means for cost."""

from catalogue.doctor.asking import MOST_REQUESTS, PATIENCE, Asking
from catalogue.doctor.findings import Diagnosis, Seen
from catalogue.doctor.here import EXTRAS, look_here

__all__ = ["EXTRAS", "MOST_REQUESTS", "PATIENCE", "Asking", "Diagnosis", "Seen", "look_here"]
