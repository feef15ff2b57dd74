"""Crawl names, manifests, datasets, and the columns of Common Crawl's index over the years."""
