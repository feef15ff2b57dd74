"""Class ``Catalogue``: everything behind one object, for notebooks and for the command line."""

from catalogue.catalogue.choosing import settings_for
from catalogue.catalogue.opening import CATALOGUE_NAME
from catalogue.catalogue.whole import Catalogue, open  # noqa: A004 - catalogue.open, as gzip.open
from catalogue.settings import STORE_NAME

__all__ = ["CATALOGUE_NAME", "STORE_NAME", "Catalogue", "open", "settings_for"]
