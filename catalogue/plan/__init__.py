"""Plan a query: prune, estimate cost, and list the requests."""
