"""Pronunciations in the phones of the acoustic model: from its dictionary, accents, letter rules.

The dictionary is American. A variant without r ("door") helps with speakers who drop it. A name
that is missing (of a lamp, a room) is read by letter groups. This is crude, but the language model
knows where such a name can stand.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

Phones = tuple[str, ...]
"Sounds of a word, in the ARPAbet notation of the CMU dictionary."

_VOWELS = frozenset(
    ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
)
_GLIDES = frozenset(("IH", "IY", "UH", "EH", "AY", "AW"))
"Vowels that keep a trace of a dropped r: near, tour, care, fire."

_VARIANTS: Mapping[str, str] = {
    "bathroom": "B AA TH R UW M",
    "garage": "G AE R IH JH",
    "half": "HH AA F",
    "plants": "P L AA N T S",
    "tomatoes": "T AH M AA T OW Z",
    "wednesday": "W EH N Z D IY",
    "what": "W AA T",
    "what's": "W AA T S",
}
"Pronunciations in other accents, apart from the dropped r."

_SPELLING = """\
tion=SH AH N,sion=ZH AH N,ough=AO,augh=AO,eigh=EY,igh=AY,tch=CH,sch=SH,ear=IH R
air=EH R,are=EH R,ch=CH,sh=SH,th=TH,ph=F,wh=W,ck=K,ng=NG,qu=K W,kn=N,wr=R,ee=IY
ea=IY,oo=UW,ou=AW,ow=OW,oi=OY,oy=OY,ai=EY,ay=EY,ey=IY,au=AO,aw=AO,ie=IY,oa=OW
ue=UW,ui=UW,ar=AA R,er=ER,ir=ER,ur=ER,or=AO R,ce=S,ci=S IH,ge=JH,y=IY,a=AE,b=B
c=K,d=D,e=EH,f=F,g=G,h=HH,i=IH,j=JH,k=K,l=L,m=M,n=N,o=AA,p=P,q=K,r=R,s=S
t=T,u=AH,v=V,w=W,x=K S,z=Z,ä=EH,ö=ER,ü=UW,ß=S,é=EY,è=EH,ñ=N Y
"""
"Phones of letter groups; the longest matching group is used."
_LETTERS: Mapping[str, str] = {
    letters: phones
    for pair in _SPELLING.replace("\n", ",").split(",")
    for letters, _, phones in [pair.partition("=")]
    if letters
}
_LONGEST = max(map(len, _LETTERS))
_LONG_VOWELS: Mapping[str, str] = {"a": "EY", "e": "IY", "i": "AY", "o": "OW", "u": "UW"}
"Phone of a vowel before one consonant and a silent e: lake, scene, pine, home, tube."


def read_dictionary(path: Path, words: Collection[str]) -> dict[str, list[Phones]]:
    """Returns the pronunciations of `words` in a CMU dictionary file, without missing words."""
    wanted = frozenset(words)
    found: dict[str, list[Phones]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            name, _, phones = line.partition(" ")
            word = name.partition("(")[0]
            if word in wanted:
                found.setdefault(word, []).append(tuple(phones.split()))
    return found


def write_dictionary(
    path: Path, pronunciations: Mapping[str, Iterable[Phones]], words: Iterable[str]
) -> None:
    """Writes a dictionary file of `words`, with variants for other accents.

    A word that `pronunciations` lacks is read by its letters.
    """
    lines = []
    for word in sorted(words):
        variants = list(pronunciations.get(word, ())) or [from_letters(word)]
        variants += [tuple(_VARIANTS[word].split())] if word in _VARIANTS else []
        variants += [_without_r(phones) for phones in variants]
        for number, phones in enumerate(dict.fromkeys(variants), start=1):
            lines.append(f"{word}{f'({number})' if number > 1 else ''} {' '.join(phones)}\n")
    path.write_text("".join(lines), encoding="utf-8")


def from_letters(word: str) -> Phones:
    """Returns the phones of an unknown word by English letter groups. Never empty."""
    phones: list[str] = []
    at = 0
    while at < len(word):
        if _has_silent_e(word, at):
            phones.append(_LONG_VOWELS[word[at]])
            at += 1
            continue
        if word[at] == "e" and at == len(word) - 1 and len(word) > 2:
            break
        for length in range(_LONGEST, 0, -1):
            group = word[at : at + length]
            if group in _LETTERS:
                new = _LETTERS[group].split()
                phones += new[1:] if phones[-1:] == new[:1] else new  # doubled letters sound once
                at += length - 1
                break
        at += 1
    return tuple(phones) or ("AH",)


def _has_silent_e(word: str, at: int) -> bool:
    return (
        word[at] in _LONG_VOWELS
        and at + 3 == len(word)
        and word[at + 2] == "e"
        and word[at + 1] not in "aeiouwxyr"
    )


def _without_r(phones: Phones) -> Phones:
    """Returns the word in an accent that drops r except before a vowel."""
    phones_out: list[str] = []
    for index, phone in enumerate(phones):
        after = phones[index + 1] if index + 1 < len(phones) else ""
        before = phones[index - 1] if index else ""
        if phone == "R" and before in _VOWELS and after not in _VOWELS:
            phones_out += ["AH"] if before in _GLIDES else []
        elif phone == "ER" and after in _VOWELS:
            phones_out += ["AH", "R"]
        elif phone == "ER" and not after:
            phones_out.append("AH")
        else:
            phones_out.append(phone)
    return tuple(phones_out)
