"""The CDX API, a JSON API and web pages over HTTP."""
