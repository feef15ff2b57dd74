"""What the map of a key space shows, in words."""

from catalogue.formatting import plural
from catalogue.key_map.key_map import KeySpace


def told(space: KeySpace, *, enough: bool) -> list[str]:
    """What the map of a key space shows, in sentences.

    Args:
        space: that is drawn.
        enough: whether enough was found before all was read that might hold some.
    """
    files = sum(lane.size for lane in space.files.lanes)
    lanes = ", ".join(f"{lane.size:,} in {lane.name}" for lane in space.files.lanes)
    are = "is" if space.read_files == 1 else "are"
    read = f"{space.read_files:,} of them {are} read for this question" if space.read_files else "none of them is read"
    found = [
        f"{plural(files, 'file')} of {space.crawl} ({lanes}) {'holds' if files == 1 else 'hold'} its keys; {read}."
    ]
    if space.read_files:
        are, it = ("is", "it") if space.read_groups == 1 else ("are", "them")
        groups = f"Of {plural(space.all_groups, 'row group')} {space.read_groups:,} {are} read"
        pages = "" if space.read_pages is None else f", and in {it} {plural(space.read_pages, 'page')} of keys"
        found.append(f"{groups}{pages}; nothing else is fetched.")
    if enough:
        found.append("What else might hold some is left alone, because enough was found before.")
    if any(lane.overlapping for axis in space.groups for lane in axis.lanes):
        found.append(
            "Row groups lie over each other, because this crawl's files are two sorted streams zipped together: "
            "a key may be in many of them."
        )
    if space.without_bounds:
        one = space.without_bounds == 1
        found.append(
            f"{plural(space.without_bounds, 'row group')} {'does' if one else 'do'} not say between which keys "
            f"{'it lies' if one else 'they lie'}, and so may hold any."
        )
    return found
