"""The protocols ("dialects") of translators' tools, one small file for each.

speaking.py           requests as JSON, forms or query strings; errors and keys in the form of each dialect
directions.py         the languages of a domain, and their names
texts.py              translates the texts of a request, with or without mark-up, and stores corrections
deepl.py              DeepL: texts, languages, usage
deepl_glossaries.py   DeepL: glossaries, in both versions of its interface
deepl_documents.py    DeepL: documents
deepl_memories.py     DeepL: translation memories, which are the domains
libretranslate.py     LibreTranslate
opuscat.py            OPUS-CAT: the plug-ins of Trados, memoQ, Wordfast and OmegaT
apertium.py           Apertium APy
tmserver.py           tmserver, of the Translate Toolkit: matches

All take the domain from the path's prefix (`/d/NAME/...`); some also accept a name or an id in the request.
"""
