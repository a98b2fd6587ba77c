"""Tags that people use find the codes that models use."""

from __future__ import annotations

import pytest

from knnmt.engine.language_codes import best_code, require_code, same_language
from knnmt.errors import SettingError

NLLB = ["arb_Arab", "arb_Latn", "azj_Latn", "deu_Latn", "eng_Latn", "fra_Latn", "lvs_Latn", "nob_Latn", "nno_Latn"]
NLLB += ["pes_Arab", "por_Latn", "srp_Cyrl", "swh_Latn", "zho_Hans", "zho_Hant", "zsm_Latn"]
MBART = ["ar_AR", "de_DE", "en_XX", "fa_IR", "pt_XX", "zh_CN"]
M2M100 = ["ar", "de", "en", "fa", "no", "pt", "zh"]


@pytest.mark.parametrize(
    ("asked", "nllb", "mbart", "m2m100"),
    [
        ("de", "deu_Latn", "de_DE", "de"),
        ("DE", "deu_Latn", "de_DE", "de"),
        ("deu", "deu_Latn", "de_DE", "de"),
        ("ger", "deu_Latn", "de_DE", "de"),
        ("deu_Latn", "deu_Latn", "de_DE", "de"),
        ("de-AT", "deu_Latn", "de_DE", "de"),
        ("de_DE.UTF-8", "deu_Latn", "de_DE", "de"),
        ("en", "eng_Latn", "en_XX", "en"),
        ("en-US", "eng_Latn", "en_XX", "en"),
        ("pt-BR", "por_Latn", "pt_XX", "pt"),
        ("fa", "pes_Arab", "fa_IR", "fa"),
        ("ar", "arb_Arab", "ar_AR", "ar"),
        ("zh", "zho_Hans", "zh_CN", "zh"),
        ("zh-CN", "zho_Hans", "zh_CN", "zh"),
        ("zh-TW", "zho_Hant", None, "zh"),
        ("zh-Hant", "zho_Hant", None, "zh"),
        ("cmn", "zho_Hans", "zh_CN", "zh"),
        ("no", "nob_Latn", None, "no"),
        ("nb-NO", "nob_Latn", None, "no"),
        ("nn", "nno_Latn", None, None),
        ("lv", "lvs_Latn", None, None),
        ("ms", "zsm_Latn", None, None),
        ("sr-Latn", None, None, None),
        ("tlh", None, None, None),
    ],
)
def test_a_tag_finds_its_code(asked: str, nllb: str | None, mbart: str | None, m2m100: str | None) -> None:
    assert best_code(asked, NLLB) == nllb
    assert best_code(asked, MBART) == mbart
    assert best_code(asked, M2M100) == m2m100


def test_every_two_letter_language_of_m2m100_and_mbart_is_found_in_nllb() -> None:
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as OF_M2M100
    from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as OF_MBART
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as OF_NLLB

    missing = {code for code in OF_M2M100["m2m100"] if best_code(code, OF_NLLB) is None}
    assert missing == {"br", "fy"}  # Breton and Frisian are not among NLLB's
    assert all(best_code(code, OF_NLLB) for code in OF_MBART)
    assert all(best_code(code, OF_NLLB) == code for code in OF_NLLB)
    found = [best_code(code.split("_")[0], OF_NLLB) for code in OF_NLLB]
    languages = [code.split("_")[0] for code in OF_NLLB]
    assert [code.split("_")[0] for code in found if code] == languages


def test_languages_are_compared_whatever_they_are_called() -> None:
    assert same_language("de", "deu") is True
    assert same_language("de-AT", "de_DE") is True
    assert same_language("de", "en") is False
    assert same_language("de", "ROMANCE") is None


def test_an_unknown_tag_is_answered_with_those_close_to_it() -> None:
    with pytest.raises(SettingError, match=r"--target-lang 'port' is none of the model's 16 languages.*por_Latn"):
        require_code("port", NLLB, "target")
    with pytest.raises(SettingError, match=r"--source-lang 'qqq' is none of.*Some of them: ar_AR, de_DE"):
        require_code("qqq", MBART, "source")
