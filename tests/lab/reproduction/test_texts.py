"""What tunes and what is reported: never the same sentence, the same on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from knnmt.corpus.splitting import halves
from knnmt.errors import InputError
from knnmt_lab.reproduction.texts import DomainText, digest, domains_in, files_of, read_text, read_training
from support.made_domains import write_domains

LANGUAGES = ("de", "en")


def test_without_test_development_text_is_divided(tmp_path: Path) -> None:
    data = write_domains(tmp_path)
    assert domains_in(data) == ["marked", "plain"]
    for domain in domains_in(data):
        text = read_text(data / domain, LANGUAGES, 0, [])
        assert text.reported_from == "half of dev"
        assert len(text.tuning) + len(text.reported) == 16
        assert not {pair.source for pair in text.tuning} & set(text.sources)
        assert [pair.source for pair in halves(text.reported)[1]] == text.sources
        assert len(read_text(data / domain, LANGUAGES, 2, []).reported) == 2
        again = DomainText.of_record(text.as_record())
        assert (again.sources, again.references) == (text.sources, text.references)


def test_test_is_reported_where_there_is_one(tmp_path: Path) -> None:
    data = write_domains(tmp_path, test=True)
    text = read_text(data / "plain", LANGUAGES, 0, [])
    assert (text.reported_from, len(text.tuning), len(text.reported)) == ("test", 16, 5)
    assert text.sources[0].startswith("Satz 200")


def test_what_the_store_will_hold_does_not_tune_and_is_counted_among_the_reported(tmp_path: Path) -> None:
    data = write_domains(tmp_path, test=True)
    whole = read_text(data / "plain", LANGUAGES, 0, [])
    held = [whole.tuning[3], whole.reported[1], whole.reported[4]]
    text = read_text(data / "plain", LANGUAGES, 0, held)
    assert [pair.source for pair in text.tuning] == [pair.source for pair in whole.tuning if pair is not held[0]]
    assert (whole.known, text.known) == (0, 2)
    told_apart = read_text(data / "plain", LANGUAGES, 1, [])
    with (data / "plain" / "dev.tsv").open("a", encoding="utf-8") as file:  # of test.tsv, its second not even reported
        file.writelines(f"{pair.source}\tother\n" for pair in whole.reported[:2])
    assert read_text(data / "plain", LANGUAGES, 1, []).tuning == told_apart.tuning
    with pytest.raises(InputError, match="0 pairs for tuning"):
        read_text(data / "plain", LANGUAGES, 0, whole.tuning)


def test_training_text_is_from_all_over_and_two_files_of_text_are_one(tmp_path: Path) -> None:
    data = write_domains(tmp_path)
    pairs = read_training(data / "marked", LANGUAGES, 4)
    assert [pair.source.split()[1] for pair in pairs] == ["300", "310", "320", "330"]
    plain = tmp_path / "lines"
    plain.mkdir()
    for part in ("train", "dev"):
        (plain / f"{part}.de").write_text("eins\nzwei\n", encoding="utf-8")
        (plain / f"{part}.en").write_text("one\ntwo\n", encoding="utf-8")
    assert [(pair.source, pair.target) for pair in read_training(plain, LANGUAGES, 0)] == [
        ("eins", "one"),
        ("zwei", "two"),
    ]


def test_other_text_has_another_digest_and_missing_text_is_named(tmp_path: Path) -> None:
    data = write_domains(tmp_path)
    before = digest(data / "plain")
    assert before == digest(data / "plain") != digest(data / "marked")
    (data / "plain" / "train.tsv").write_text("a\tb\n", encoding="utf-8")
    assert digest(data / "plain") != before
    (data / "plain" / "dev.tsv").unlink()
    with pytest.raises(InputError, match=r"expected dev\.\*"):
        files_of(data / "plain")
    with pytest.raises(InputError, match="found no train"):
        domains_in(data / "marked")
    with pytest.raises(InputError, match="expected a directory"):
        domains_in(data / "absent")
