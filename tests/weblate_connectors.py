"""Weblate's own connectors against a running `knnmt serve`: they save their settings, and translate.

`make test-dialects` runs it with the Python of an environment that has Weblate, and `make test` does not look at it.
Weblate needs a few packages that are built on libraries of the system, for fonts, screenshots and backups; connectors
use none of them, so that empty stand-ins do.
"""

# ruff: noqa: E402 - Weblate can be imported when Django is set up
from __future__ import annotations

import re
import subprocess
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from unittest.mock import MagicMock

import django
from django.conf import settings

for missing in ("cairo", "gi", "gi.repository", "tesserocr"):
    sys.modules[missing] = MagicMock()

import weblate.settings_example as weblate_settings

own_settings = {name: getattr(weblate_settings, name) for name in dir(weblate_settings) if name.isupper()}
settings.configure(
    **{
        **own_settings,
        "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        "CACHES": {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
        "SITE_DOMAIN": "weblate.example",
        "LOGGING": {"version": 1, "disable_existing_loggers": True},
    }
)
django.setup()

from django.core.cache import cache
from django.db import connection
from weblate.checks.tests.test_checks import MockComponent, MockUnit
from weblate.configuration.models import Setting, SettingCategory
from weblate.machinery.models import MACHINERY
from weblate.machinery.views import EditMachineryGlobalView

from support import ROOT
from support.served_process import KNNMT, ServedProcess, key_for

KNOWN, HELD = "Der Auftrag wurde freigegeben.", "Job cleared."  # of the example memory
PATIENCE_SECONDS = 60  # Weblate has 5 or 20, which a busy machine may need for other things
BATCH = [f"Der Auftrag mit der Nummer {number} wurde nicht gefunden." for number in range(20)]


def unit(source: str, flags: str = "", languages: tuple[str, str] = ("de", "en")) -> Any:
    """A string to translate, without a database."""
    made = MockUnit(source=source, code=languages[1], flags=flags)
    made.translation.component = MockComponent(languages[0])
    return made


class Connectors(unittest.TestCase):
    """Each connector is set up as a person does it: its form is filled, checked and saved, and read again."""

    stack: ClassVar[ExitStack]
    open: ClassVar[ServedProcess]
    locked: ClassVar[ServedProcess]
    writer: ClassVar[str]
    reader: ClassVar[str]

    @classmethod
    def setUpClass(cls) -> None:
        for name in ("apertium-apy", "deepl", "libretranslate", "tmserver"):
            MACHINERY[name].request_timeout = PATIENCE_SECONDS
        cls.stack = ExitStack()
        cls.addClassCleanup(cls.stack.close)
        place = Path(cls.stack.enter_context(TemporaryDirectory()))
        store, keys = str(place / "store"), str(place / "keys.json")
        subprocess.run([*KNNMT, "build", str(ROOT / "examples" / "memory.tsv"), "-o", store], check=True)
        cls.writer, cls.reader = key_for(keys, "write"), key_for(keys, "translate")
        options = ["--store", f"lager={store}"]
        cls.open = ServedProcess(cls.stack, *options, "--data", str(place / "open"))
        cls.locked = ServedProcess(cls.stack, *options, "--data", str(place / "locked"), "--keys", keys)
        with connection.schema_editor() as editor:
            editor.create_model(Setting)

    def setUp(self) -> None:
        cache.clear()
        Setting.objects.all().delete()

    def saved(self, name: str, **filled: str) -> Any:
        """The connector of settings that were saved."""
        machinery = MACHINERY[name]
        form = machinery.settings_form(machinery, data=filled)
        assert form.is_valid(), form.errors
        view = EditMachineryGlobalView()
        view.machinery_id = name
        view.save_settings(form.cleaned_data)
        return machinery(Setting.objects.get_settings_dict(SettingCategory.MT)[name])

    def translations(self, connector: Any, asked: Any) -> list[str]:
        [plural] = connector.translate(asked)
        return [each["text"] for each in plural]

    def each(self) -> list[tuple[Any, str]]:
        """All that translate, each with the form of its placeholders."""
        address = f"{self.open.address}/d/lager"
        keyed = f"{self.locked.address}/d/lager"
        return [
            (self.saved("deepl", url=f"{address}/v2/", key="any"), "deepl"),
            (self.saved("libretranslate", url=address), "libretranslate"),
            (self.saved("apertium-apy", url=f"{address}/apy"), "apertium"),
            (self.saved("deepl", url=f"{keyed}/v2/", key=self.writer), "deepl with a key"),
            (self.saved("deepl", url=f"{keyed}/v2/", key=self.reader), "deepl with a key that may not write"),
            (self.saved("libretranslate", url=f"{keyed}/", key=self.reader), "libretranslate with a key"),
        ]

    def test_settings_are_saved_and_strings_translated(self) -> None:
        for connector, name in self.each():
            with self.subTest(name):
                connector.delete_cache()
                assert self.translations(connector, unit(KNOWN)) == [HELD]
                assert self.translations(connector, unit(KNOWN, languages=("de_AT", "en_GB"))) == [HELD]
                assert connector.translate(unit("Hello", languages=("en", "cs"))) == []
                cache.clear()

    def test_placeholders_come_back(self) -> None:
        source = "Der Lieferant {name} wurde <b>freigegeben</b> & {count} mal gelöscht."
        for connector, name in self.each():
            with self.subTest(name):
                connector.delete_cache()
                [made] = self.translations(connector, unit(source, "python-brace-format, xml-text"))
                for placeholder in ("{name}", "{count}", "<b>", "</b>", "&"):
                    assert made.count(placeholder) == 1, made
                assert not re.search(r"\[X\d+X\]|<x |&amp;", made)
                cache.clear()

    def test_a_batch_is_translated_and_several_at_once_are_not_turned_away(self) -> None:
        """Weblate waits five seconds for DeepL, and asks nothing for half an hour after some refusals."""
        connector = self.saved("deepl", url=f"{self.open.address}/d/lager/v2/", key="any")
        units = [unit(source) for source in BATCH]
        begun = time.monotonic()
        connector.batch_translate(units)
        print(f"{len(units)} strings took {time.monotonic() - begun:.1f} seconds", file=sys.stderr)
        for number, each in enumerate(units):
            assert str(number) in each.machinery["translation"][0]
        with ThreadPoolExecutor(4) as translators:
            made = translators.map(lambda source: self.translations(connector, unit(source)), BATCH[:8])
            assert [len(each) for each in made] == [1] * 8
        assert not connector.is_rate_limited()

    def test_a_glossary_is_sent_and_used(self) -> None:
        asked = unit("Der Lieferant ist da.")
        component, language = asked.translation.component, asked.translation.language
        kept = component.project.get_glossary_tsv_cache_key(component.source_language, language)
        connector = self.saved("deepl", url=f"{self.locked.address}/d/lager/v2/", key=self.writer)
        for term in ("purveyor", "provisioner"):  # the second takes the first one's place
            cache.set(kept, f"Lieferant\t{term}")
            [made] = self.translations(connector, asked)
            assert term in made.lower(), made
        assert len(connector.list_glossaries()) == 1
        reader = self.saved("deepl", url=f"{self.locked.address}/d/lager/v2/", key=self.reader)
        cache.clear()
        cache.set(kept, "Lieferant\tpurveyor")
        assert len(self.translations(reader, asked)) == 1
        assert not reader.is_rate_limited()

    def test_tmserver_has_matches(self) -> None:
        connector = self.saved("tmserver", url=f"{self.open.address}/d/lager/tmserver")
        assert self.translations(connector, unit(KNOWN))[0] == HELD
        near = connector.translate(unit("Der Auftrag wurde nicht freigegeben."))[0]
        assert all(75 <= each["quality"] < 100 for each in near)
        assert near[0]["source"] == KNOWN

    def test_wrong_settings_are_not_saved(self) -> None:
        for name, filled, words in (
            ("deepl", {"url": f"{self.locked.address}/v2/", "key": "wrong"}, "is unknown"),
            ("libretranslate", {"url": self.locked.address, "key": ""}, "key"),
            ("apertium-apy", {"url": f"{self.open.address}/d/none/apy"}, "domain"),
        ):
            with self.subTest(name):
                machinery = MACHINERY[name]
                form = machinery.settings_form(machinery, data=filled)
                assert not form.is_valid()
                assert words in str(form.errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
