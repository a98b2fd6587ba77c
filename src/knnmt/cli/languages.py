"""The options that name languages. They are the same wherever a model is loaded.

They apply to the text and to the model: "de" chooses the German side of a TMX file and the model's deu_Latn.
"""

from __future__ import annotations

from typing import Annotated

import typer

SourceLanguage = Annotated[
    str | None,
    typer.Option(
        "--source-lang",
        metavar="TAG",
        help="Language to translate from: a tag (de, pt-BR) or the model's own code; multilingual models need it.  "
        "[default: the model's]",
        show_default=False,
    ),
]
TargetLanguage = Annotated[
    str | None,
    typer.Option(
        "--target-lang", metavar="TAG", help="Language to translate to.  [default: the model's]", show_default=False
    ),
]
