"""What Ctrl-C says: what was done, and never that nothing was when it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from knnmt.cli.interrupt import ends_with
from knnmt.datastore.publication import publish_file


def interrupted(place: Path | None) -> None:
    if place is not None:
        publish_file(place, lambda file: file.write(b"before"))
    raise KeyboardInterrupt


@pytest.mark.parametrize("there", [True, False])
def test_an_interruption_after_publication_says_that_it_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    place = tmp_path / "manifest.json"
    if there:
        place.write_text("before")
    for publishes, said in ((False, "the store is unchanged"), (True, "it is done")):
        with pytest.raises(typer.Exit) as left, ends_with("the store is unchanged", place, "it is done"):
            interrupted(place if publishes else None)
        assert left.value.exit_code == 130
        assert capsys.readouterr().err == f"\nknnmt: interrupted; {said}\n"


def test_without_a_place_there_is_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), ends_with("nothing more is shown"):
        raise KeyboardInterrupt
    assert "interrupted; nothing more is shown" in capsys.readouterr().err
