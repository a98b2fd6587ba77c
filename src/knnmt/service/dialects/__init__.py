"""What translators' tools already speak, one small file a dialect.

speaking.py           requests as JSON, forms or addresses; errors as a dialect says them; keys by its own means
directions.py         between which languages a domain translates, and what they are called
texts.py              texts of a request, with or without mark-up, through the batcher
deepl.py              DeepL: texts, languages, usage
deepl_glossaries.py   DeepL: glossaries, in both versions of its interface
deepl_documents.py    DeepL: documents
deepl_memories.py     DeepL: translation memories, which are the domains
libretranslate.py     LibreTranslate
opuscat.py            OPUS-CAT: the plug-ins of Trados, memoQ, Wordfast and OmegaT
apertium.py           Apertium APy
tmserver.py           tmserver, of the Translate Toolkit: matches

All of them take the domain from the path's prefix (`/d/NAME/...`), and some by a name or number of their own.
"""
