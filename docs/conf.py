"""How the site is built: ``make docs``."""

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # where the extension is

from catalogue.settings import package_version

gc.disable()  # a third of the time; all of the site fits into memory

project = "catalogue"
author = "The maintainers of catalogue"
version = release = package_version()

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated"]
exclude_patterns = ["_build"]
default_role = "code"
smartquotes = False  # what is quoted may be typed
nitpicky = True
# Other projects' names are not looked up: the site is built without a network.
nitpick_ignore_regex = [
    (r"py:.*", r"(asyncio|collections|concurrent|datetime|_?duckdb|enum|pathlib|typing)\..*"),
    (r"py:.*", r"(dask|dd|pa|pandas|pd|pl|pyarrow|pyiceberg)\..*|Axes"),
    # Names that are imported for annotations alone.
    (r"py:class", r"CrawlWords|Executor|Moment|Observer|Output|Path|SomeCaptures|Values"),
    # Internal classes, which appear in signatures alone.
    (r"py:class", r"catalogue\.\w+\.\w+\.[A-Z]\w+"),
]

myst_enable_extensions = ["deflist", "fieldlist"]
myst_heading_anchors = 4

napoleon_google_docstring = True
napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"
# What calls return is made by nobody else; and what says nothing of itself is there all the same.
autodoc_default_options = {"exclude-members": "__init__, __new__", "undoc-members": True}

html_theme = "furo"
html_title = f"catalogue {release}"
html_copy_source = False
html_show_copyright = False
