"""``catalogue``: nothing is stored; the list of blocks is searched where it is, and blocks answer."""

from benchmarks.clients.site_asking import start
from benchmarks.clients.site_ours import ask

if __name__ == "__main__":
    start(ask)
