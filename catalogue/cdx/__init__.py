"""The CDX format and the CDX index."""
