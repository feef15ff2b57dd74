"""What the suite tries a little of, tried at length; see ``python -m tests.slow --help``."""
