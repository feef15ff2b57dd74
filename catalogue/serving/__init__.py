"""Questions from many people at once, answered by a few catalogues that share one source."""

from catalogue.serving.service import Service

__all__ = ["Service"]
