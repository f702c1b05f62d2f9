"""The Moses tokenizer in lower case, as papers on translation use it for BLEU."""

from __future__ import annotations

import re
import unicodedata

from seqloom.errors import SeqloomError

_LETTERS = "a b c d e f g h i j k l m n o p q r s t u v w x y z"
_ROMAN = "ii iii iv vi vii viii ix xi xii xiii xiv xv xvi xvii xviii xix xx"
# By language, what keeps its full stop wherever it stands (Moses' lists of nonbreaking prefixes): of these the ones in
# lower case, and without those that hold a full stop themselves, which every language keeps.
ABBREVIATIONS = {
    "cs": "prof doc abt ad aj angl anon apod atd atp aut bd biogr cca cit cizojaz col čes čín čj ed facs fasc fol fot "
    "franc hist hl hrsg ibid il ind jap jhdt jv koed kol korej kl krit lat lit maď mj mp násl např nepubl něm no nr "
    "okr odd odp obr opr orig phil pl pokrač pol port pozn přel přeprac příl pseud pt red repr resp revid rkp roč roz "
    "rozš samost sect sest seš sign sl srv stol sv šk špan tab tis tj tř tzv univ uspoř vol vs vyd vyobr zal zejm zkr "
    "zprac zvl než abl absol adj adv ak akt alch amer anat anglosas arab arch archit arg astr astrol att bás belg bibl "
    "biol boh bot bulh círk csl č čas dat děj dep dět dial dór dopr dosl ekon epic etnonym eufem f fam fem fil film "
    "form fr fut fyz gen geogr geol geom germ gram hebr herald hovor hud hut chcsl chem ie imp impf indoevr inf instr "
    "interj ión iron it kanad katalán klas kniž komp konj konkr kř kuch lék les lid liturg lok log m mat meteor metr "
    "mod ms mysl n náb námoř neklas nesklon nom ob obch obyč ojed opt part pas pejor pers pf plpf práv prep předl "
    "přivl r rcsl refl reg ř řec s samohl sg souhl spec srov stfr střv stsl subj subst superl sz táz tech telev teol "
    "trans typogr var vedl verb voj vok vůb vulg výtv vztaž zahr zájm zast zeměd zř dl sport horn pomn ev slang nprap "
    "dop st tzn p br čp ml vč kr mld hod popř ap event rus slov rum švýc hor dol",
    "de": f"{_LETTERS} {_ROMAN} bzw vs usw etc ggf vgl sogen ff sog evtl spp sen jun dgl dergl zzt usf bzgl pp ca "
    + " ".join(map(str, range(1, 100))),
    "en": "v vs rev",
    "es": "adj admón afmo apdo av c cap cm cta dcha doc ej entlo esq etc gr grs izq kg km mg mm núm p ptas pág págs s "
    "vid vol",
    "fr": f"{_LETTERS.removeprefix('a ')} art ann apr av auj lib boul ca cf chap contr dir éd env al etc ex fasc fém "
    "fig fr hab ibid id inf masc ms pl pp sec sect sing sq sqq suiv sup suppl tél vb vol vs",
    "it": "acc all banc corr dott ecc es fatt gg int lett ogg on post racc ric seg sgg ss tel v vs rev",
    "nl": "bacc bc bgen dhr dr drs ds eint fa fam gen genm ing ir jhr jkvr jr kand kol lgen lkol maj mevr mr plv prof "
    "ritm tint bijv bijz bv ev nrs",
    "pt": f"{_LETTERS.replace(' p', '')} {_ROMAN} adj adm adv art cit col con corp cpl dr dra dras drs eng enga engas "
    "engos ex exo exmo fig op prof sr sra sras srs sto vs rev",
}
# What keeps it before a number.
NUMBERED = {"en": "pp", "it": "pp", "nl": "nr", "pt": "p pp"}
LANGUAGES = tuple(ABBREVIATIONS)
MOSES = tuple(f"moses:{language}" for language in LANGUAGES)
_KEPT = {language: frozenset(words.split()) for language, words in ABBREVIATIONS.items()}
_BEFORE_NUMBERS = {language: frozenset(words.split()) for language, words in NUMBERED.items()}

_NUMBER = r"\d\u2160-\u2188"
_LETTER, _OTHER = r"[^\W\d_]", r"[\W\d_]"
# What is neither letter, digit, blank nor one of . , - ' ` stands alone; dots in a row stay together.
_SIGN = re.compile(r"([^\w\s.,'`-]|_)")
_DOTS = re.compile(r"\.{2,}")
_COMMAS = [  # not the one in 10,000; one after the other, as Moses has them, so that a,,5 comes out alike
    (re.compile(rf"([^{_NUMBER}]),"), r"\1 , "),
    (re.compile(rf",([^{_NUMBER}])"), r" , \1"),
    (re.compile(rf"([{_NUMBER}]),$"), r"\1 , "),
]
# isn't → isn 't, 1990's → 1990 's.
_ENGLISH = [
    (re.compile(rf"({_OTHER})'({_OTHER})"), r"\1 ' \2"),
    (re.compile(rf"([^\w{_NUMBER}]|_)'({_LETTER})"), r"\1 ' \2"),
    (re.compile(rf"({_LETTER})'({_OTHER})"), r"\1 ' \2"),
    (re.compile(rf"({_LETTER})'({_LETTER})"), r"\1 '\2"),
    (re.compile(rf"([{_NUMBER}])'(s)"), r"\1 '\2"),
]
# l'homme → l' homme.
_ROMANCE = [
    (re.compile(rf"({_OTHER})'({_OTHER})"), r"\1 ' \2"),
    (re.compile(rf"({_OTHER})'({_LETTER})"), r"\1 ' \2"),
    (re.compile(rf"({_LETTER})'({_OTHER})"), r"\1 ' \2"),
    (re.compile(rf"({_LETTER})'({_LETTER})"), r"\1' \2"),
]
_ALONE = [(re.compile("'"), " ' ")]
_APOSTROPHES = {"en": _ENGLISH, "fr": _ROMANCE, "it": _ROMANCE}


def language_of(tokenize: str) -> str | None:
    """The language of a tokenizer "moses:de"; plain "moses" is that of English, as it was before it took a language.
    None for every other tokenizer."""
    name, colon, language = tokenize.partition(":")
    if name != "moses":
        return None
    if colon and language not in LANGUAGES:
        raise SeqloomError(f"tokenizer {tokenize!r}: the languages of moses are {', '.join(LANGUAGES)}, as in moses:de")
    return language if colon else "en"


def moses(text: str, language: str = "en") -> list[str]:
    """The tokens of a sentence, in lower case (Koehn et al. 2007, tokenizer.perl of Moses).

    Multi30k's own tokens (Elliott et al. 2016) were made so: lower case first, then cut. A full stop stays with its
    word if the word has another within, as u.s., if a small letter follows, or if the word is one of `ABBREVIATIONS`.
    Signs are not written as entities: &quot; and " are one token either way.
    """
    text = " ".join(text.lower().split())
    # What is below a blank in ASCII is dropped; ² and ½ are signs to Moses.
    odd = {ord(sign): f" {sign} " for sign in set(text) if unicodedata.category(sign) == "No"}
    odd |= {ord(sign): "" for sign in set(text) if sign < " "}
    text = _DOTS.sub(lambda dots: f" {dots[0]} ", _SIGN.sub(r" \1 ", text.translate(odd).strip())).rstrip()
    for pattern, apart in (*_COMMAS, *_APOSTROPHES.get(language, _ALONE)):
        text = pattern.sub(apart, text)
    words = text.split()
    text = " ".join(
        token for place, word in enumerate(words) for token in _stopped(word, words[place + 1 : place + 2], language)
    )
    return (f"{text[:-2]} . '" if text.endswith(".'") else text).split()


def _stopped(word: str, after: list[str], language: str) -> list[str]:
    """A word, with its full stop separated if it ends a sentence."""
    stem = word[:-1]
    if not word.endswith(".") or not stem or stem.endswith("."):
        return [word]
    following = after[0][0] if after else ""
    kept = "." in stem and any(letter.isalpha() for letter in stem)
    kept = kept or stem in _KEPT[language] or following.islower()
    return [word] if kept or (stem in _BEFORE_NUMBERS.get(language, ()) and following in _DIGITS) else [stem, "."]


_DIGITS = frozenset("0123456789")
