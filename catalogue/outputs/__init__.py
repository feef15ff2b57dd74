"""What is made of records, and kept: files that are never half there under their own names."""

from catalogue.outputs.forms import Form, Lines, Warc
from catalogue.outputs.ledger import Ledger
from catalogue.outputs.parts import Parts

__all__ = ["Form", "Ledger", "Lines", "Parts", "Warc"]
