"""``python -m catalogue``."""

from catalogue.cli import main

if __name__ == "__main__":
    main()
