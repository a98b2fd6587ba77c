"""Finds the language code of a model that fits a language tag: "de" is "deu_Latn" for NLLB and "de_DE" for mBART.

Tags and codes are compared by language (ISO 639-3, the individual language if models mean that), then by script, then
by region.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from knnmt.corpus.languages import normalise
from knnmt.errors import SettingError

# Two-letter codes and the three-letter codes that models use for them.
_THREE_LETTERS = """
af afr  am amh  ar arb  as asm  ay ayr  az azj  ba bak  be bel  bg bul  bm bam  bn ben  bo bod  br bre  bs bos  ca cat
cs ces  cy cym  da dan  de deu  dz dzo  ee ewe  el ell  en eng  eo epo  es spa  et est  eu eus  fa pes  ff fuv  fi fin
fj fij  fo fao  fr fra  fy fry  ga gle  gd gla  gl glg  gn grn  gu guj  ha hau  he heb  hi hin  hr hrv  ht hat  hu hun
hy hye  id ind  ig ibo  is isl  it ita  iw heb  ja jpn  jv jav  ka kat  kg kon  ki kik  kk kaz  km khm  kn kan  ko kor
kr knc  ks kas  ku kmr  ky kir  la lat  lb ltz  lg lug  li lim  ln lin  lo lao  lt lit  lv lvs  mg plt  mi mri  mk mkd
ml mal  mn khk  mr mar  ms zsm  mt mlt  my mya  nb nob  ne npi  nl nld  nn nno  no nob  ns nso  ny nya  oc oci  om gaz
or ory  pa pan  pl pol  ps pbt  pt por  qu quy  rn run  ro ron  ru rus  rw kin  sa san  sc srd  sd snd  sg sag  si sin
sk slk  sl slv  sm smo  sn sna  so som  sq als  sr srp  ss ssw  st sot  su sun  sv swe  sw swh  ta tam  te tel  tg tgk
th tha  ti tir  tk tuk  tl tgl  tn tsn  tr tur  ts tso  tt tat  ug uig  uk ukr  ur urd  uz uzn  vi vie  wo wol  xh xho
yi ydd  yo yor  zh zho  zu zul
"""
# Macrolanguages and the other set of three-letter codes.
_OTHER_NAMES = """
ara arb  aym ayr  aze azj  cmn zho  fas pes  fil tgl  ful fuv  kau knc  kur kmr  lav lvs  mlg plt  mon khk  msa zsm
nep npi  nor nob  ori ory  orm gaz  pus pbt  que quy  sqi als  swa swh  uzb uzn  yid ydd
alb als  arm hye  baq eus  bur mya  chi zho  cze ces  dut nld  fre fra  geo kat  ger deu  gre ell  ice isl  mac mkd
mao mri  may zsm  per pes  rum ron  slo slk  tib bod  wel cym
"""


def _languages() -> dict[str, str]:
    """Maps every name of a language to the one name that is compared."""
    words = (_THREE_LETTERS + _OTHER_NAMES).split()
    return {name: name for name in words[1::2]} | dict(zip(words[::2], words[1::2], strict=True))


_LANGUAGES = _languages()
# The default script for a tag without one, if a model has several, and the regions that imply a script.
_USUAL_SCRIPTS = {
    "ace": "latn",
    "arb": "arab",
    "bjn": "latn",
    "kas": "arab",
    "knc": "latn",
    "taq": "latn",
    "zho": "hans",
}
_SCRIPT_OF_REGION = {("zho", region): "hant" for region in ("tw", "hk", "mo")} | {
    ("zho", region): "hans" for region in ("cn", "sg")
}


@dataclass(frozen=True, slots=True)
class _Parts:
    language: str
    script: str | None = None
    region: str | None = None


def _parts(tag: str) -> _Parts:
    first, *others = normalise(tag).split("-")
    language = _LANGUAGES.get(first, first)
    script = next((other for other in others if len(other) == 4 and other.isalpha()), None)
    region = next((other for other in others if len(other) in (2, 3) and other != "xx"), None)
    return _Parts(language, script or _SCRIPT_OF_REGION.get((language, region or "")), region)


def same_language(one: str, other: str) -> bool | None:
    """Whether two tags name the same language; None if one is unknown, as names of language groups are."""
    languages = [_LANGUAGES.get(normalise(tag).split("-")[0]) for tag in (one, other)]
    return None if None in languages else languages[0] == languages[1]


def best_code(asked: str, codes: Sequence[str]) -> str | None:
    """The code that fits the tag best, or None."""
    for code in codes:
        if normalise(code) == normalise(asked):
            return code
    wanted = _parts(asked)
    usual = wanted.script or _USUAL_SCRIPTS.get(wanted.language)
    answering = [(parts, code) for code in codes if (parts := _parts(code)).language == wanted.language]
    fitting = [
        (parts, code) for parts, code in answering if wanted.script is None or parts.script in (None, wanted.script)
    ]
    if not fitting:
        return None
    # A code without a region is better than one with a different region. Among equals, the first code wins.
    return min(
        fitting,
        key=lambda each: (each[0].script not in (None, usual), each[0].region != wanted.region, each[0].region or ""),
    )[1]


def require_code(asked: str, codes: Sequence[str], side: str) -> str:
    """The code that fits the tag, or an error that suggests similar codes."""
    code = best_code(asked, codes)
    if code is not None:
        return code
    by_name = {normalise(code): code for code in codes}
    close = difflib.get_close_matches(normalise(asked), list(by_name), n=6, cutoff=0.5)
    close += [name for name in by_name if name[:2] == normalise(asked)[:2] and name not in close]
    if close:
        hint = f"Close to it: {', '.join(by_name[name] for name in close[:8])}."
    else:
        hint = f"Some of them: {', '.join(sorted(codes)[:12])}."
    raise SettingError(f"--{side}-lang {asked!r} is none of the model's {len(codes)} languages. {hint}")


@dataclass(frozen=True, slots=True)
class Languages:
    """The languages that an engine translates between, in the model's own spelling; None if they are not stated.

    codes: all languages that the model can be set to; empty for a model of two languages
    """

    source: str | None = None
    target: str | None = None
    codes: tuple[str, ...] = ()

    def contradict(self, source: str, target: str) -> bool:
        """Whether the engine was loaded for other languages than those of the text."""
        return self._differ(self.source, source) or self._differ(self.target, target)

    def _differ(self, own: str | None, asked: str) -> bool:
        if own is None:
            return False
        if own in self.codes:
            return best_code(asked, self.codes) != own
        return same_language(own, asked) is False

    def __str__(self) -> str:
        return f"{self.source or '?'} to {self.target or '?'}"
