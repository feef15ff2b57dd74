"""What a source and an installation are like, and what each of that means for cost."""

from catalogue.doctor.doctor_findings import Diagnosis, Seen
from catalogue.doctor.installation import EXTRAS, look_here
from catalogue.doctor.probe import MOST_REQUESTS, PATIENCE, Asking

__all__ = ["EXTRAS", "MOST_REQUESTS", "PATIENCE", "Asking", "Diagnosis", "Seen", "look_here"]
