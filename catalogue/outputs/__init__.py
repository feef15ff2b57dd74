"""What is made of records, and kept: files that are never half there under their own names."""

from catalogue.outputs.folder import Folder
from catalogue.outputs.forms import SUFFIXES, Form, Lines, Payloads, Warc
from catalogue.outputs.ledger import Ledger, Place
from catalogue.outputs.opening import Output, form_for, open_folder, open_output
from catalogue.outputs.parts import Parts
from catalogue.outputs.places import Away, Here, digest_of, split_output
from catalogue.outputs.rows import Rows

__all__ = [
    "SUFFIXES",
    "Away",
    "Folder",
    "Form",
    "Here",
    "Ledger",
    "Lines",
    "Output",
    "Parts",
    "Payloads",
    "Place",
    "Rows",
    "Warc",
    "digest_of",
    "form_for",
    "open_folder",
    "open_output",
    "split_output",
]
