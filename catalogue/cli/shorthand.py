"""What ``--mime`` and ``--lang`` may be, and what is meant by those that they cannot be."""

import mimetypes

from catalogue.errors import QueryError

_LETTERS = 3
_TWO_LETTERS = (
    "af:afr am:amh ar:ara as:asm az:aze be:bel bg:bul bn:ben bs:bos ca:cat cs:ces cy:cym da:dan de:deu el:ell en:eng "
    "eo:epo es:spa et:est eu:eus fa:fas fi:fin fo:fao fr:fra fy:fry ga:gle gd:gla gl:glg gu:guj ha:hau he:heb hi:hin "
    "hr:hrv ht:hat hu:hun hy:hye id:ind ig:ibo is:isl it:ita iw:heb ja:jpn jv:jav ka:kat kk:kaz km:khm kn:kan ko:kor "
    "ku:kur ky:kir la:lat lb:ltz lo:lao lt:lit lv:lav mg:mlg mi:mri mk:mkd ml:mal mn:mon mr:mar ms:msa mt:mlt my:mya "
    "ne:nep nl:nld nn:nno no:nor or:ori pa:pan pl:pol ps:pus pt:por ro:ron ru:rus sa:san sd:snd si:sin sk:slk sl:slv "
    "so:som sq:sqi sr:srp su:sun sv:swe sw:swa ta:tam te:tel tg:tgk th:tha tk:tuk tl:tgl tr:tur tt:tat ug:uig uk:ukr "
    "ur:urd uz:uzb vi:vie xh:xho yi:yid yo:yor zh:zho zu:zul"
)
"""Codes of ISO 639-1, and those of ISO 639-3 that the index has instead."""


def language(code: str) -> str:
    """``code``, if a language in the index may have it.

    Raises:
        QueryError: if none has.
    """
    if len(code) == _LETTERS and code.isascii() and code.islower():
        return code
    known = dict(pair.split(":") for pair in _TWO_LETTERS.split())
    lowered = code.lower()
    like = known.get(lowered.split("-")[0].split("_")[0], lowered if len(code) == _LETTERS else None)
    hint = f"did you mean {like}?" if like else "they have three small letters, such as eng (ISO 639-3)"
    message = f"{code[:100]!r} is no language in the index; {hint}"
    raise QueryError(message)


def media_type(text: str) -> str:
    """``text``, unless it is a suffix of files instead of their type.

    Raises:
        QueryError: if it is.
    """
    suffix = text.lower().lstrip(".")
    like, _ = mimetypes.MimeTypes().guess_type(f"file.{suffix}", strict=False)
    if "/" not in text and like:
        message = f"{text[:100]!r} is no media type; did you mean {like}?"
        raise QueryError(message)
    return text
