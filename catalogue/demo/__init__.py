"""A miniature data.commoncrawl.org and a loopback server for it, for the first minute and for tests."""

from catalogue.demo.loopback import Exchange, LoopbackServer
from catalogue.demo.miniature import Miniature, write_miniature

__all__ = ["Exchange", "LoopbackServer", "Miniature", "write_miniature"]
