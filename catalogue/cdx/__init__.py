"""The CDX format, and the CDX API without a server."""
