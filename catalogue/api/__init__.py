"""The calls of class ``Catalogue`` and their documentation, divided by subject."""
