"""Questions from many people at once, answered by a few catalogues that share one source."""

from catalogue.serving.replay import Replayed, described, replay, text
from catalogue.serving.service import Service

__all__ = ["Replayed", "Service", "described", "replay", "text"]
