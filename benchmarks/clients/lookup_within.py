"""Become a client in another environment: ``python -m benchmarks.clients.lookup_within PYTHON MODULE ARGUMENTS``."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.argv[1], [sys.argv[1], "-m", *sys.argv[2:]])
