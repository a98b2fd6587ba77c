<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="en_US" sourcelanguage="de_DE">
<context>
    <name>MainWindow</name>
    <message>
        <location filename="a.cpp" line="12"/>
        <source>&amp;Datei öffnen</source>
        <comment>menu</comment>
        <translation type="unfinished"></translation>
    </message>
    <message>
        <source>Fertig</source>
        <translation>Done</translation>
    </message>
    <message>
        <source>Fast<byte value="x7"/> fertig</source>
        <translation type="unfinished">Almost</translation>
    </message>
    <message numerus="yes">
        <source>%n Datei(en)</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message>
        <source>Weg</source>
        <translation type="vanished">Gone</translation>
    </message>
    <message id="bare">
        <source>Ohne</source>
    </message>
    <message>
        <source>Leer</source>
        <translation/>
    </message>
</context>
</TS>
