"""Places of files, row groups and pages of a crawl among its keys."""
