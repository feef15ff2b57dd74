"""Where the files, row groups and pages of a crawl lie among its keys."""
