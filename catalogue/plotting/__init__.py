"""Maps of a key space as matplotlib draws them, to be read on paper too: nothing is told by colour alone."""

from catalogue.plotting.maps import draw_crawl, draw_question

__all__ = ["draw_crawl", "draw_question"]
