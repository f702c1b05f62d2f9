"""The encoding of a file: as set, by its byte order mark, or detected from its beginning.

All other modules read UTF-8: `as_utf8` converts.
"""

from __future__ import annotations

import codecs
import io
import re
from contextlib import suppress
from typing import BinaryIO

from seqloom.errors import SeqloomError, shown

UTF8 = "utf-8"
_NO_FILE_ENCODINGS = (
    "idna",
    "punycode",
    "undefined",
    "unicode-escape",
    "raw-unicode-escape",
)  # codecs of domain names, or of Python source
HEAD = 1 << 16  # bytes at the beginning of a file by which its format is detected
_CHUNK = 1 << 16
_BOMS = (  # the longer ones first: a UTF-32 file begins as a UTF-16 one does
    (b"\xef\xbb\xbf", UTF8),
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
ENCODING_NAMES = {"utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "utf-32": "UTF-32"}
ENCODING_NAMES |= {"cp1252": "Latin-1 (cp1252)", "gb18030": "GB18030"}
# Frequent characters of western languages beyond ASCII, in cp1252.
_WESTERN = set("äöüÄÖÜßéèêëàâáãåçíìîïñóòôõøúùûýæœŠšŽžÉÈÀÇÁÍÓÚÑÅØÆŒð€£§°´«»“”‘’„–—…¿¡·©®™¼½²³ªº×\xa0".replace(" ", ""))
# The most frequent characters of Chinese: half of any text, but a twelfth if it is decoded wrongly.
_CHINESE = set(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种"
    "事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民"
    "第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月"
    "话合回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变"
    "四神总何电数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马科司五基眼"
    "书非则听白却界达光放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共确传师观清今切"
    "院让识候带导争运买错吗吧呢很棒差喜欢店服务质快递早餐房间酒店手机电影标签文本句子类别词性源译情感评价意图输入编号语"
    "读音汉拼注答案，。！？：；、“”（）《》"
)
_KANA = {chr(code) for code in range(0x3041, 0x30FF)}
# Encodings, their letters, and the least share of these among all non-ASCII characters.
_CANDIDATES = (
    ("shift_jis", _KANA, 0.3),
    ("euc_jp", _KANA, 0.3),
    ("euc_kr", {chr(code) for code in range(0xAC00, 0xD7A4)}, 0.8),
    ("gb18030", _CHINESE, 0.25),
    (
        "big5",
        _CHINESE | set("個們這來時國說會麼過還沒對學樣點開電話機錢買賣車書間問題員師務質歡電視嗎長東語氣風請謝"),
        0.25,
    ),
    ("cp1251", set("абвгдежзийклмнопрстуфхцчшщъыьэюяіїєґ"), 0.7),
    ("koi8_r", set("абвгдежзийклмнопрстуфхцчшщъыьэюя"), 0.7),
    ("cp1252", _WESTERN, 0.9),
    ("cp1250", set("ąćęłńóśźżáčďéěíňřšťúůýžőűöüĄĆĘŁŃÓŚŹŻÁČĎÉĚÍŇŘŠŤÚŮÝŽŐŰÖÜ„”–"), 0.9),
)


def lookup_encoding(encoding: str) -> str:
    """The Python name of an encoding that the user names."""
    try:
        found = codecs.lookup(encoding)
        text = found._is_text_encoding and found.name not in _NO_FILE_ENCODINGS  # pyright: ignore
    except (LookupError, ValueError):
        text = found = None
    if found is None or not text:
        raise SeqloomError(
            f"unknown --encoding {shown(encoding)}; for example utf-8, utf-16, cp1252 (Latin-1), gb18030"
        )
    return UTF8 if found.name == "utf-8-sig" else found.name


def bom_encoding(head: bytes) -> str | None:
    """The encoding by the byte order mark; None without one."""
    return next((encoding for mark, encoding in _BOMS if head.startswith(mark)), None)


def detect_encoding(head: bytes) -> str:
    """The likely encoding of the beginning of a file; UTF-8 unless another is clearly likelier."""
    if found := bom_encoding(head):
        return found
    if found := _detect_utf16(head):
        return found
    whole = head if len(head) < HEAD else head[: head.rfind(b"\n") + 1] or head[: HEAD - 4]
    lines = [line for line in whole.split(b"\n") if not line.isascii()]
    broken = [line for line in lines if not _is_utf8(line)]
    if not broken or 2 * len(broken) <= len(lines):
        return UTF8  # single lines may be damaged
    text = b"\n".join(broken)
    return "gb18030" if _is_chinese(text) else "cp1252" if _is_western(text) else UTF8


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return error.start > HEAD - 8  # the last character may be cut in two
    return True


def _detect_utf16(head: bytes) -> str | None:
    """UTF-16 without a mark: in western text every other byte is NUL, in Chinese one at every line end."""
    even, odd = head[0:2000:2], head[1:2000:2]
    zeros = even.count(0), odd.count(0)
    if len(odd) < 4 or max(zeros) == 0 or min(zeros) > 0.02 * len(odd):
        return None
    encoding = "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    return encoding if max(zeros) >= 0.6 * len(odd) or _is_chinese(head[:2000], encoding) else None


def _is_chinese(raw: bytes, encoding: str = "gb18030") -> bool:
    """Whether it decodes to Chinese: few errors, and frequent characters are frequent."""
    text = raw.decode(encoding, "replace")
    wide = [sign for sign in text if sign > "\x7f"]
    wrong = text.count("\ufffd")
    if not wide or wrong > 0.02 * len(wide):
        return False
    common = sum(sign in _CHINESE for sign in wide)
    return common >= 0.25 * len(wide)


def _is_western(raw: bytes) -> bool:
    """Whether it decodes to a western language: non-ASCII letters are isolated and frequent ones."""
    text = raw.decode("cp1252", "replace")
    wide = [sign for sign in text if sign > "\x7f"]
    letters = sum(sign.isalpha() and sign <= "\x7f" for sign in text)
    rows = len(re.findall(r"[^\x00-\x7f]{3,}", text))
    common = sum(sign in _WESTERN for sign in wide)
    return common >= 0.9 * len(wide) and len(wide) <= 0.5 * letters and rows <= 0.02 * len(wide)


def likely_encoding(raw: bytes) -> str | None:
    """The likely encoding of a line that is not UTF-8, as a hint to the user."""
    for encoding, letters, least in _CANDIDATES:
        with suppress(UnicodeDecodeError):
            wide = [sign for sign in raw.decode(encoding) if sign > "\x7f"]
            if len(wide) > 1 and sum(sign in letters for sign in wide) >= least * len(wide):
                return encoding
    return None


def as_utf8(stream: BinaryIO, encoding: str) -> BinaryIO:
    """The stream recoded to UTF-8. Bytes that cannot be decoded become invalid UTF-8 too."""
    return stream if encoding == UTF8 else io.BufferedReader(_Utf8Stream(stream, encoding), _CHUNK)  # pyright: ignore


class _Utf8Stream(io.RawIOBase):
    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self._stream, self._encoding, self._waiting = stream, encoding, b""
        self._read = getattr(stream, "read1", stream.read)  # standard input: what is available
        self._decoder: codecs.IncrementalDecoder | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        while not self._waiting:
            raw = self._read(_CHUNK)
            self._decoder = self._decoder or _decoder(self._encoding, raw)
            self._waiting = self._decoder.decode(raw, not raw).encode(UTF8, "surrogatepass")
            if not raw:
                break
        size = min(len(buffer), len(self._waiting))
        buffer[:size], self._waiting = self._waiting[:size], self._waiting[size:]
        return size

    def close(self) -> None:
        self._stream.close()
        super().close()


def _decoder(encoding: str, head: bytes) -> codecs.IncrementalDecoder:
    """UTF-16 and UTF-32 without a byte order mark: detected, else little-endian as on Windows."""
    if encoding in ("utf-16", "utf-32") and bom_encoding(head) != encoding:
        encoding = (_detect_utf16(head) if encoding == "utf-16" else None) or f"{encoding}-le"
    return codecs.getincrementaldecoder(encoding)("seqloom.lost")


def _lone_surrogates(error: UnicodeError) -> tuple[str, int]:
    """Each undecodable byte becomes a lone surrogate, which `undecodable_byte` recognizes."""
    assert isinstance(error, UnicodeDecodeError)
    end = max(error.end, error.start + 1)
    return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : end]), end


codecs.register_error("seqloom.lost", _lone_surrogates)


def undecodable_byte(raw: bytes, place: int) -> int | None:
    """The original byte that `as_utf8` could not decode at this position of a line; None if it could."""
    try:
        sign = ord(raw[place : place + 3].decode(UTF8, "surrogatepass"))
    except (UnicodeDecodeError, TypeError):
        return None
    return sign - 0xDC00 if 0xDC00 <= sign <= 0xDCFF else None
