"""Decode bytes by the label of a charset, as browsers do (https://encoding.spec.whatwg.org/).

webencodings maps labels to Python's codecs. Some reject or map bytes differently from the standard; error handlers and
small tables correct that, except for two kinds of slashes of big5 and a tilde of JIS X 0212.
"""

import codecs
import re
from collections.abc import Iterator, Mapping
from functools import cache, partial
from itertools import product

import webencodings

UTF_8, UTF_16_LE, UTF_16_BE, WINDOWS_1252 = "utf-8", "utf-16le", "utf-16be", "windows-1252"
X_USER_DEFINED = "x-user-defined"

_INVALID = "\ufffd"
_ISO_2022_JP, _REPLACEMENT = "iso-2022-jp", "replacement"
_SAME_DECODER = {"gbk": "gb18030"}
_LEAD_BYTES = {
    "big5": range(0x81, 0xFF),
    "euc-jp": [0x8E, 0x8F, *range(0xA1, 0xFF)],
    "euc-kr": range(0x81, 0xFF),
    "gb18030": range(0x81, 0xFF),
    "gbk": range(0x81, 0xFF),
    "shift_jis": [*range(0x81, 0xA0), *range(0xE0, 0xFD)],
}
_SINGLE_BYTES = {"gb18030": {0x80: "€"}, "gbk": {0x80: "€"}, "windows-1255": {0xCA: "\u05ba"}}
"""Bytes that the standard maps and Python's codec rejects."""
_GB_2005 = dict(
    zip(
        [0xE5E5, *range(0xE78D, 0xE797), 0xE7C7, 0xE81E, 0xE826, 0xE82B, 0xE82C, 0xE832, 0xE843, 0xE854, 0xE864],
        [0x3000, 0xFE10, 0xFE12, 0xFE11, *range(0xFE13, 0xFE1A), 0x1E3F, *range(0x9FB4, 0x9FBC)],
        strict=True,
    )
)
_CHARACTERS = {
    "big5": str.maketrans(
        "\u2022\uff64\u203e\u223c\u2641\u2609¥¢£", "\u2027\ufe51\u00af\uff5e\u2295\u2299\uffe5\uffe0\uffe1"
    ),
    "euc-jp": str.maketrans("\u301c\u2016\u2212¢£¬", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2"),
    "gb18030": _GB_2005,
    "gbk": _GB_2005,
    "koi8-u": str.maketrans("\u255d\u256c", "\u045e\u040e"),
    "shift_jis": dict.fromkeys(range(0xF8F0, 0xF8F4), _INVALID),
}
"""Characters that Python's codec returns instead of those of the standard."""
_GB = {"gb18030", "gbk"}
_FOUR_BYTES = re.compile(rb"[0-9](?:([\x81-\xfe][0-9])|[\x81-\xfe]?\Z)")
"""The group after the first of four bytes is None at the end of the data."""
_BIG5_PICTURES = {(0xA3, 0xC0 + number): chr(0x2400 + number) for number in range(32)} | {(0xA3, 0xE0): "\u2421"}
_BIG5_BYTES = (
    "877a877b877c877d877e87a187a287a387a487a587a687a787a887a987aa87ab87ac87ad87ae87af87b087b187b287b387b4"
    "87b587b687b787b887b987ba87bb87bc87bd87be87bf87c087c187c287c387c487c587c687c787c887c987ca87cb87cc87cd"
    "87ce87cf87d087d187d287d387d487d587d687d787d887d987da87db87dc87dd87de87df8e698e6f8e7e8eab8eb48ecd8ed0"
    "8f578f698f6e8fcb8fcc8ffe906d907a90dc90f191bf924492af92b092b192b292c892d1944794ca95d9964496ed96fc9b76"
    "9b789b7b9bc69bde9bec9bf69c429c539c629c689c6b9c779cbc9cbd9cd09d579d5a9dc49ea99eef9efd9f609f669fcb9fd8"
    "a063a077a0d5a0dfa0e4a3e1c6cfc6d3c6d5c6d7c6dec6dffa5ffa66fabdfac5fad5fb48fbb8fbf3fbf9fc4ffc6cfcb9fce2"
    "fcf1fdb7fdb8fdbbfdf1fe52fe6ffeaafedd"
)
_BIG5_CHARACTERS = (
    "㡵𡵓𣚞𦀡㻬𥣞㫵竼龗𤅡𨤍𣇪𠪊𣉞䌊蒄龖鐯䤰蘓墖靊鈘秐稲晠権袝瑌篅枂稬剏遆㓦珄𥶹瓆鿇垳䤯呌䄱𣚎堘穲𧭥讏䚮𦺈"
    "䆁𥶙箮𢒼鿈𢓁𢓉𢓌鿉蔄𣖻䂴鿊䓡𪷿拁灮鿋箸簆糎緒縝者耨菁蒨萏覦覩起都銹靜響鼖蔃兙兛兝兞鍮瑹浧禛邗靝瀞嬨爁"
    "矗纇駖釔惞澶輶侻營鄄鷰菏尐秣婧輋筑拐恢痹汊鬮鼗僭弌蠏拎瑨煢牐€廴无癶隶〃仝倩偽包卄卿嘅婷幵廐彘悤撐晴"
    "杞沜渝港煮猪瑜瓩砉"
)
_BIG5_ADDED = _BIG5_PICTURES | dict(
    zip(zip(*[iter(bytes.fromhex(_BIG5_BYTES))] * 2, strict=True), _BIG5_CHARACTERS, strict=True)
)
"""Pairs of HKSCS-2008, and second codes of the same characters, which Python rejects."""
_JIS_X_0212 = 0x8F
_TRAILS = range(0xA1, 0xFF)
_FIRST_NON_ASCII = 0x80
_ESCAPE = re.compile(rb"\x1b(\([BJI]|\$[@B])")
_JIS_X_0208, _ROMAN, _KATAKANA = (b"$@", b"$B"), b"(J", b"(I"
_JIS_RUN = re.compile(rb"((?:[!-~]{2})+)|[!-~][^\x1b]?|.", re.DOTALL)
_TO_EUC = bytes((byte + 0x80) % 0x100 for byte in range(0x100))
_KATAKANA_BYTES = range(0x21, 0x60)
_CONTROLS = {0x0E: _INVALID, 0x0F: _INVALID, 0x1B: _INVALID}
_NOT_ENCODED = {"big5": range(0x81, 0xA1), "shift_jis": range(0xED, 0xF0), "gb18030": [0x80]}
"""Bytes that are decoded, but that begin no code when text is encoded."""
_LAST_CODE = "═╞╡╪十卅"
"""Characters of big5 whose second code is used."""
_SIMILAR_CHARACTERS = dict.fromkeys(["euc-jp", "shift_jis"], str.maketrans("¥‾\u2212", "\\~\uff0d"))
_ROMAN_CHARACTERS = {0x5C: "¥", 0x7E: "‾"}


def charset_of(label: str) -> str | None:
    """Return the encoding standard's name of the charset that a label means, or None."""
    name = webencodings.LABELS.get(label.strip("\t\n\f\r ").lower()) if label.isascii() else None
    return name if name is None else str(name)


def decode(data: bytes, charset: str) -> str:
    """Decode bytes without byte order mark; each invalid sequence becomes one U+FFFD."""
    if charset == _REPLACEMENT:  # of a few charsets that browsers do not decode, because they hide ASCII
        return _INVALID if data else ""
    if charset == _ISO_2022_JP:
        return "".join(_iso_2022_jp(data))
    codec = webencodings.lookup(_SAME_DECODER.get(charset, charset)).codec_info
    text: str = codec.decode(data, _handler_name(charset))[0]
    return text.translate(_CHARACTERS[charset]) if charset in _CHARACTERS else text


def encode(text: str, charset: str) -> bytes:
    """Encode a part of a query as forms and links do; characters outside of the charset become escaped numbers."""
    if charset in {_REPLACEMENT, UTF_16_BE, UTF_16_LE}:
        charset = UTF_8
    if charset == UTF_8:
        return text.encode(errors="replace")
    codes = _codes(charset)
    characters = text.translate(_SIMILAR_CHARACTERS.get(charset, {}))
    return b"".join(codes.get(each) or _other_code(each, charset) for each in characters).replace(b"\x1b(B\x1b$B", b"")


@cache
def _codes(charset: str) -> dict[str, bytes]:
    """Return the code of each character of one or two bytes, from the decoder."""
    if charset == _ISO_2022_JP:
        pairs = {each: code for each, code in _codes("euc-jp").items() if len(code) > 1 and code[0] in _TRAILS}
        return {each: b"\x1b$B%b\x1b(B" % code.translate(_TO_EUC) for each, code in pairs.items()}
    codes: dict[str, bytes] = {}
    for code in [*((byte,) for byte in range(256)), *product(_LEAD_BYTES.get(charset, ()), range(0x40, 0xFF))]:
        character = decode(bytes(code), charset)
        if code[0] not in _NOT_ENCODED.get(charset, ()) and (character not in codes or character in _LAST_CODE):
            codes[character] = bytes(code)
    return codes | {_INVALID: b""}


def _other_code(character: str, charset: str) -> bytes:
    if charset == "gb18030":  # its codec encodes every character
        return character.encode(charset, "replace")
    return character.encode("ascii", "ignore") or b"%%26%%23%d%%3B" % ord(character)


def _handler_name(charset: str) -> str:
    if charset not in _LEAD_BYTES and not charset.startswith("windows-"):
        return "replace"
    name = f"catalogue.{charset}"
    try:
        codecs.lookup_error(name)
    except LookupError:
        singles = {byte: chr(byte) for byte in range(0x80, 0xA0)} if charset.startswith("windows-") else {}
        handler = partial(_replace, charset, singles | _SINGLE_BYTES.get(charset, {}))
        codecs.register_error(name, handler)
    return name


def _replace(charset: str, singles: Mapping[int, str], error: UnicodeError) -> tuple[str, int]:
    """Return the characters for the bytes that a codec rejects, and where to continue."""
    assert isinstance(error, UnicodeDecodeError)  # noqa: S101 - the handlers are only used to decode
    data, start = error.object, error.start
    first = data[start]
    if first in singles:
        return singles[first], start + 1
    if first not in _LEAD_BYTES.get(charset, ()):
        return _INVALID, start + 1
    following = data[start + 1 : start + 4]
    if charset == "big5" and (added := _BIG5_ADDED.get((first, *following[:1]))):
        return added, start + 2
    if charset in _GB and (four := _FOUR_BYTES.match(following)) and (four[1] or start + 1 + four.end() == len(data)):
        return _INVALID, start + 1 + four.end()
    if charset == "euc-jp" and len(following) > 1 and first == _JIS_X_0212 and following[0] in _TRAILS:
        return _INVALID, start + (2 if following[1] < _FIRST_NON_ASCII else 3)
    if charset == "euc-jp" and following and following[0] in _TRAILS and first in _TRAILS:
        return _in_windows_31j(first, following[0]), start + 2
    return _INVALID, start + (1 if not following or following[0] < _FIRST_NON_ASCII else 2)


def _in_windows_31j(first: int, second: int) -> str:
    """Return the character of a pair of euc-jp in the rows that only windows-31j has."""
    row, cell = first - 0xA0, second - 0xA0
    lead = (row + 1) // 2 + (0x80 if row <= 62 else 0xC0)  # noqa: PLR2004 - two ranges of lead bytes
    trail = cell + (0x9E if row % 2 == 0 else 0x3F if cell <= 63 else 0x40)  # noqa: PLR2004 - without 0x7F
    return bytes([lead, trail]).decode("cp932", "replace")[:1]


def _iso_2022_jp(data: bytes) -> Iterator[str]:
    pieces = _ESCAPE.split(data)
    escapes: list[bytes] = [b"(B", *pieces[1::2]]
    for number, (escape, piece) in enumerate(zip(escapes, pieces[::2], strict=True)):
        if not piece and 0 < number < len(escapes) - 1:
            yield _INVALID  # an escape sequence follows another one
        if escape in _JIS_X_0208:
            yield from _jis_x_0208(piece)
        elif escape == _KATAKANA:
            yield "".join(chr(byte + 0xFF40) if byte in _KATAKANA_BYTES else _INVALID for byte in piece)
        else:
            text = piece.decode("ascii", "replace").translate(_CONTROLS)
            yield text.translate(_ROMAN_CHARACTERS) if escape == _ROMAN else text


def _jis_x_0208(data: bytes) -> Iterator[str]:
    for match in _JIS_RUN.finditer(data):
        yield decode(match[1].translate(_TO_EUC), "euc-jp") if match[1] else _INVALID


_QUOTED = r'"(?:[^"\\]|\\.)*"?'
VALUE, _PARAMETER = (re.compile(rf'(?:[^{end}"]|{_QUOTED})+', re.DOTALL) for end in ",;")
_TYPE = re.compile(r"[^\s/]+/[^\s/]+")
_ANY = "*/*"
_SIMILAR = re.compile(r"(?:^|[;,\s])charset\s*=[\s\"'\\]*([^\"'\\;,\s]+)", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def declared_charset(content_type: str) -> str | None:
    """Return the charset that browsers read: the first parameter of the last type, or of an equal type before it.

    ``content_type`` has all values of the header, separated by commas.
    """
    label, last = "", ""
    for value in VALUE.findall(content_type):
        kind, _, parameters = value.partition(";")
        kind = kind.strip().lower()
        if not _TYPE.fullmatch(kind) or kind == _ANY:
            continue
        label, last = next(_labels(parameters), label if kind == last else ""), kind
    return charset_of(label)


def similar_charset(content_type: str) -> str | None:
    """Return the charset after ``charset=`` anywhere, where browsers read none, of text that contains ASCII."""
    found = map(charset_of, _SIMILAR.findall(content_type))
    return next((name for name in found if name not in {None, _REPLACEMENT, UTF_16_BE, UTF_16_LE}), None)


def _labels(parameters: str) -> Iterator[str]:
    for parameter in _PARAMETER.findall(parameters):
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "charset" and value:
            value = value.strip(" \t")
            yield _ESCAPED.sub(r"\1", value[1:].removesuffix('"')) if value.startswith('"') else value
