"""OmegaT 3.6 against a running `knnmt serve`: its Apertium connector translates a project.

`make test-dialects` runs it. It needs OmegaT and a display that nobody sees; on Debian 12: `apt-get install omegat xvfb
xauth`. A script in OmegaT's folder of scripts sets the address, as docs/tools.md says. Another script goes through the
project and chooses the items of the menu that a translator chooses.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import unittest
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from support.served_process import KNNMT, ServedProcess, key_for

PATIENCE_SECONDS = 180  # from the start of OmegaT until it has ended
# Exact matches, so that each answer is known: quotes, a path, letters beyond ASCII.
MEMORY = {
    "Der Auftrag wurde freigegeben.": "Job cleared.",
    "Die Datei „A“ liegt in C:\\temp.": 'The file "A" is in C:\\temp.',
    "Größer als 5 € 😀": "Über 5 € — naïve 😀",
}
PREFERENCES = """<?xml version="1.0" encoding="UTF-8"?>
<omegat><preference version="1.0">
<allow_apertium_translate>true</allow_apertium_translate><mt_auto_fetch>true</mt_auto_fetch>
<scripts_dir>{scripts}</scripts_dir>
</preference></omegat>
"""
PROJECT = """<?xml version="1.0" encoding="UTF-8"?>
<omegat><project version="1.0"><source_dir>__DEFAULT__</source_dir><target_dir>__DEFAULT__</target_dir>
<tm_dir>__DEFAULT__</tm_dir><glossary_dir>__DEFAULT__</glossary_dir><dictionary_dir>__DEFAULT__</dictionary_dir>
<source_lang>DE</source_lang><target_lang>EN-US</target_lang><sentence_seg>false</sentence_seg>
<support_default_translations>true</support_default_translations><remove_tags>false</remove_tags></project></omegat>
"""
ADDRESS = """import org.omegat.core.machinetranslators.ApertiumTranslate
ApertiumTranslate.GT_URL = "{address}/d/office/apy/translate?q="
"""
WITH_KEY = """ApertiumTranslate.GT_URL2 = "&langpair=#sourceLang#|#targetLang#&key={key}"
"""
TRANSLATOR = """import javax.swing.SwingUtilities
import org.omegat.core.Core
Thread.startDaemon {{
  while (!Core.project?.projectLoaded || !Core.editor?.currentEntry) sleep(200)
  def menu = Core.mainWindow.menu
  for (entry in Core.project.allEntries) {{
    SwingUtilities.invokeAndWait {{ Core.editor.gotoEntry(entry.entryNum()) }}
    sleep(1000)
    for (waited in 1..150) if (Core.machineTranslatePane.displayedTranslation == null) sleep(200)
    SwingUtilities.invokeAndWait {{ menu.editOverwriteMachineTranslationMenuItem.doClick() }}
  }}
  SwingUtilities.invokeAndWait {{ Core.editor.commitAndLeave() }}
  Core.project.saveProject()
  new File("{done}").text = "saved"
}}
"""
# $0 is the file that ends the wait, the rest the program.
UNTIL_DONE = f"""
"$@" & program=$!
for second in $(seq {PATIENCE_SECONDS}); do [ -e "$0" ] && break; kill -0 $program || break; sleep 1; done
kill $program
"""


class Connector(unittest.TestCase):
    """What a translator sees and saves."""

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.place = Path(self.stack.enter_context(TemporaryDirectory()))
        memory = self.place / "office.tsv"
        memory.write_text("".join(f"{source}\t{target}\n" for source, target in MEMORY.items()), encoding="utf-8")
        subprocess.run(
            [*KNNMT, "build", "--source-lang", "de", str(memory), "-o", str(self.place / "store")], check=True
        )

    def test_translations_are_saved_whole(self) -> None:
        service = ServedProcess(self.stack, "--store", f"office={self.place / 'store'}")
        translations = self.translated(ADDRESS.format(address=service.address))
        assert translations == MEMORY, translations

    def test_a_key_is_sent(self) -> None:
        keys = str(self.place / "keys.json")
        script = ADDRESS + WITH_KEY.format(key=key_for(keys, "translate"))
        service = ServedProcess(self.stack, "--store", f"office={self.place / 'store'}", "--keys", keys)
        translations = self.translated(script.format(address=service.address))
        assert translations == MEMORY, translations

    def translated(self, script: str) -> dict[str, str]:
        """The translations that a project has when OmegaT has been through it with a script that sets the address."""
        scripts, project, done = self.place / "scripts", self.place / "project", self.place / "done"
        for directory in (scripts / "application_startup", self.place / "config", project / "source"):
            directory.mkdir(parents=True)
        (scripts / "application_startup" / "knnmt.groovy").write_text(script, encoding="utf-8")
        (scripts / "application_startup" / "translator.groovy").write_text(
            TRANSLATOR.format(done=done), encoding="utf-8"
        )
        (self.place / "config" / "omegat.prefs").write_text(PREFERENCES.format(scripts=scripts), encoding="utf-8")
        (project / "omegat.project").write_text(PROJECT, encoding="utf-8")
        for name in ("omegat", "tm", "glossary", "dictionary", "target"):
            (project / name).mkdir()
        (project / "source" / "text.txt").write_text("\n\n".join(MEMORY), encoding="utf-8")
        log = run_until(done, ["omegat", f"--config-dir={self.place / 'config'}", str(project)], self.place / "log.txt")
        assert done.exists(), f"OmegaT did not save the project:\n{log[-3_000:]}"
        return saved(project / "omegat" / "project_save.tmx")


def run_until(done: Path, command: Sequence[str], log: Path) -> str:
    """Run a program on a display of its own until it has written a file; return what it said."""
    with log.open("w", encoding="utf-8") as out:
        subprocess.run(
            ["xvfb-run", "--auto-servernum", "sh", "-c", UNTIL_DONE, str(done), *command],
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=PATIENCE_SECONDS + 30,
        )
    return log.read_text(encoding="utf-8", errors="replace")


def saved(memory: Path) -> dict[str, str]:
    """The pairs of a project's translation memory."""
    units = ElementTree.parse(memory).getroot().iter("tu")
    return dict([str(segment.text) for segment in unit.iter("seg")] for unit in units)


if __name__ == "__main__":
    if any(shutil.which(program) is None for program in ("omegat", "xvfb-run")):
        sys.exit("This check needs OmegaT 3.6 and a virtual display. On Debian 12: apt-get install omegat xvfb xauth")
    unittest.main(verbosity=2)
