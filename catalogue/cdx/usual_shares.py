"""Usual places of keys in a list of blocks, for searches that know nothing of the list.

How pages divide among top-level domains changes little from crawl to crawl. The figures only choose where a search
reads first.
"""

from bisect import bisect, bisect_right
from itertools import accumulate

_FIGURES = """
ae 6 ai 6 app 23 ar 8 ar,com 25 at 42 au 19 au,com 68 az 5 be 52 bg 15 biz 14 br 34 br,com 137 by 20 ca 92 cat 13 cc
14 ch 61 cl 24 club 7 cn 61 cn,com 23 co 44 com 4120 com,blogspot 60 com,pinterest 11 cz 112 de 438 dk 46 edu 82 ee 15
es 92 eu 70 fi 33 fm 6 fr 191 gov 42 gr 55 hk 12 hr 16 hu 53 id 23 id,co 20 ie 17 il 3 il,co 18 in 63 info 63 io 26 ir
37 is 6 it 183 jp 171 jp,co 73 kr 12 kr,co 26 kz 13 lt 17 lv 12 me 17 mx 16 mx,com 15 my 11 net 300 news 8 ng 6 nl 145
no 31 nu 5 nz 7 nz,co 16 online 15 org 529 org,wikipedia 20 pe 8 ph 6 pk 8 pl 187 pro 9 pt 31 ro 61 rs 15 ru 466 se 57
sg 8 shop 17 si 15 sk 36 store 7 su 7 th 12 top 8 tr 15 tr,com 31 tv 19 tw 14 tw,com 23 ua 48 ua,com 18 uk 21 uk,ac 21
uk,co 161 us 19 vn 54 xyz 16 za 4 za,co 21
"""
"""Pages in 10,000 by the first labels of their keys; a domain does not count the domains below it that are listed.

Common Crawl publishes the figures of top-level domains, those of the largest for 2026, and of the largest sites. Those
of ``co.uk`` and the like are estimated from a list of popular sites.
"""
_NAMES = """
1234 1hap 2ch- 3edg 51fe 61 800b 998p aber acti adon aero ahly akma aliw alma amer anfo anyw apps arch ashe atai auto
ayen bais baom bd benc beto bike bitm blin blox boll born brav btcc busi ca80 cana care cbin cfo chea chin cinc clas
clkp co18 coll conc cool cox cric cssm cycl dall db-e deli dest diff disc dnfw dong dozn dsg7 e-ca ebay edu- ekta eloc
ener epwe espa ever expe fair fash feng film fits flya ford foxc free frmt fura gall gaol geel getm girl go2a good
gpes grim gulf hait harr heal hent hima hoga hort hq-s hung iboo ifar imag incl info inst invo isar iwat jasp jeux
job1 joyb just kan2 keep kick klik kore kute lang lead leop life lips live logs lowf maaj mail mang mark maul medi
meli mete miit mirr mobi momm mosw mr1m mura mych myma mytr nap- ncsj netw news nikk nont nsan obsp okma ones ooyy
orzt oyun pans pati pdd2 perf phot pion play polk port prac pris prot punj qian quic radi raya reci reli revc riya
rosa runt sain sast scie seat send seve shar shla siam sing sky- smar socc solv spac spor stan ster stud sunf svbc
t2cn tami tcmr tech tepi thea thef them thes this time tmal tong torr trad trek trus tula tvse ubor unfo upwo uupo
vcpo vgsi vine vitr vtex wanl wdwm webr wen whol winn wome worl wtop xiao xrox yanb ying your yunt zenp zk71
"""
"""Beginnings of names that divide the popular sites of ``com`` into equal parts."""

PAGES = {label.encode() + b",": int(count) for label, count in zip(*[iter(_FIGURES.split())] * 2, strict=True)}
_labels = sorted(PAGES)
_started = [0, *accumulate(PAGES[label] for label in _labels)]
_names = [name.encode() for name in ("", *_NAMES.split(), "~")]


def usual_share(key: bytes) -> float:
    """Return the usual share of a list before a key, see ``Predictor``."""
    first, second, *_ = *key.split(b",", 2), b""
    before: float = _started[bisect_right(_labels, key)]
    for label in (first + b",", first + b"," + second + b","):
        if key.startswith(label):
            before -= PAGES.get(label, 0) * (1 - _share_of_names(key[len(label) :]))
    return before / _started[-1]


def _share_of_names(name: bytes) -> float:
    place = bisect(_names, name, hi=len(_names) - 1)
    start, value, end = map(_number, (_names[place - 1], name, _names[place]))
    part = (value - start) / (end - start) if start < end else 0.0
    return (place - 1 + min(max(0.0, part), 1.0)) / (len(_names) - 1)


def _number(name: bytes) -> float:
    return float(sum(max(0, letter - 96) / 27**place for place, letter in enumerate(name[:8])))
