r"""The kinds of placeholders: their patterns, the texts in which they count, and their specifications.

What is a placeholder depends on where a text comes from: `__count__` is one in JSON, but bold type in Markdown. A kind
counts in the document formats and under the flags of gettext that it names, or anywhere. `no-c-format` takes the kinds
of `c-format` out.

The order matters: of several kinds that begin at the same character, the first counts. Every pattern takes linear time.
"""

from __future__ import annotations

from dataclasses import dataclass

ANYWHERE = "anywhere"
UNFLAGGED = "unflagged"  # messages of a PO catalog without a flag that names a format
_GETTEXT = "https://www.gnu.org/software/gettext/manual/html_node/"
_PRINTF_FLAGS = (
    "c-format objc-format c++-format python-format php-format perl-format javascript-format awk-format lua-format "
    "sh-printf-format tcl-format elisp-format librep-format modula2-format d-format go-format"
)
_BRACE_FLAGS = "python-brace-format perl-brace-format java-format csharp-format c++-format rust-format"
_KEYED = "json yaml"  # formats whose strings come from internationalisation libraries of JavaScript and Ruby
_DATE_PART = r"[dD]{2,4}+|M{2,4}+|[yY]{2}(?:[yY]{2})?+|[hH]{2}|mm|ss"
_WITHOUT_ACCELERATORS = "json yaml markdown html docx android resx subtitles"  # there, _ in a word is not a key


@dataclass(frozen=True, slots=True)
class PlaceholderKind:
    """A kind of placeholder.

    where: the document formats and flags of gettext in which it counts, separated by spaces
    triggers: expressions, separated by spaces, of which one matches something in every placeholder of this kind; text
        without them is not searched
    specification: where its form is defined
    examples: some placeholders, separated by spaces
    """

    name: str
    where: str
    pattern: str
    triggers: str
    specification: str
    examples: str


_FILE_ENDINGS = """
    7z apk ass avi bak bat bib bmp bz2 cfg class conf cpp crt cs css csr csv db deb dll doc docx epub exe flac gif go gz
    htm html ico img ini ipynb iso jar java jpeg jpg js json jsx key lock log lua md mkv mo mp3 mp4 msi odp ods odt ogg
    otf patch pdf pem php pl plist png po pot ppt pptx properties ps1 py rar rb resx rpm rs rst rtf scss sdlxliff sh sql
    sqlite srt svg swift tar tbx tex tgz tiff tmp tmx toml ts tsv tsx ttf txt vb vtt vue wav webm webp woff xhtml xlf
    xliff xls xlsx xml xz yaml yml zip
""".split()  # noqa: SIM905
_FILE_ENDING = "|".join(_FILE_ENDINGS)

KINDS = (
    PlaceholderKind(
        "web address",
        ANYWHERE,
        r"(?:(?i:https?|ftps?|file|ssh|git|wss?))://[^\s<>\"'»“”]++|(?:www\.|mailto:)[^\s<>\"'»“”]++",
        r":// www\. mailto:",
        "https://www.rfc-editor.org/rfc/rfc3986",
        "https://example.org/a-b?c=d#e http://localhost:8000/ www.example.org mailto:x@example.org ftp://example.org/x",
    ),
    PlaceholderKind(
        "e-mail address",
        ANYWHERE,
        r"(?<![\w.+-])[\w.+-]{1,64}+@[\w-]++(?:\.[\w-]++)++",
        "@",
        "https://www.rfc-editor.org/rfc/rfc5321",
        "a.b@example.org",
    ),
    PlaceholderKind(
        "nesting of i18next",
        ANYWHERE,
        r"\$t\([^()\n]*+\)",
        r"\$",
        "https://www.i18next.com/translation-function/nesting",
        "$t(common:name) $t(girls)",
    ),
    PlaceholderKind(
        "template of Handlebars, Mustache, Vue, Angular, Jinja, i18next or MediaWiki",
        ANYWHERE,
        r"\{\{\{[^{}\n]*+\}\}\}|\{\{[^{}\n]*+\}\}|\{%(?:[^{}%\n]++|%(?!\}))*+%\}|\{#[^{}\n]*+\}",
        r"\{",
        "https://handlebarsjs.com/guide/expressions.html",
        "{{x}} {{user.name}} {{-html}} {{{raw}}} {{#if}} {{/if}} {%x%} {{SITENAME}} {#each}",
    ),
    PlaceholderKind(
        "template of ERB and Template Toolkit",
        ANYWHERE,
        r"<%(?:[^<>%\n]++|%(?!>))*+%>|\[%(?:[^\[\]%\n]++|%(?!\]))*+%\]",
        r"<% \[%",
        "https://docs.ruby-lang.org/en/master/ERB.html",
        "<%=name%> [%count%]",
    ),
    PlaceholderKind(
        "variable in braces of JavaScript, Ruby, shells and build tools",
        f"{ANYWHERE} sh-format ruby-format",
        r"[$#%@]\{[^{}\n]*+\}|\$\([\w.]++\)",
        r"\{ \$",
        "https://guides.rubyonrails.org/i18n.html#passing-variables-to-translations",
        "${x} ${user.name} #{x} %{name} @{user} $(x)",
    ),
    PlaceholderKind(
        "override code of SSA and ASS",
        ANYWHERE,
        # A drawing follows \p1: "m 0 0 l 100 0 100 100".
        r"\{(?=[^{}\n]*\\p[1-9])\\[^{}\n]*+\}[-mnlbspc\d. ]*+(?![^\W\d_])|\{\\[^{}\n]*+\}",
        r"\{",
        "https://aegisub.org/docs/latest/ass_tags/",
        r"{\an8} {\i1} {\pos(320,40)} {\c&HFF0000&\b1}",
    ),
    PlaceholderKind(
        "format of a date or time",
        _KEYED,
        rf"(?<![\w./:-])(?:{_DATE_PART})(?:[./:-](?:{_DATE_PART}))++(?!\w)",
        r"[dDMyYhHms][./:-][dDMyYhHms]",
        "https://www.unicode.org/reports/tr35/tr35-dates.html#Date_Format_Patterns",
        "DD.MM.YYYY yyyy-MM-dd HH:mm:ss",
    ),
    PlaceholderKind(
        "line drawn with signs",
        ANYWHERE,
        r"-{4,}+|_{4,}+|={4,}+|\*{4,}+|#{4,}+|~{4,}+",
        r"---- ____ ==== \*\*\*\* #### ~~~~",
        "https://docutils.sourceforge.io/docs/ref/rst/restructuredtext.html#transitions",
        "---- ______ ========",
    ),
    PlaceholderKind(
        "quoting of ICU MessageFormat",
        ANYWHERE,
        r"'[{}]++'|''(?=\{)|(?<=\})''",
        r"\{ \}",
        "https://unicode-org.github.io/icu/userguide/format_parse/messages/#quotingescaping",
        "'{' '}'",
    ),
    PlaceholderKind(
        "variable of Smarty, Latte and Moodle",
        ANYWHERE,
        r"\{\$[^{}\s]++\}",
        r"\{",
        "https://smarty-php.github.io/smarty/stable/designers/language-basic-syntax/language-syntax-variables/",
        "{$user->name} {$name|escape} {$list[0].title}",
    ),
    PlaceholderKind(
        "merge tag of Mailchimp",
        ANYWHERE,
        r"\*\|[^|*\n]++\|\*",
        r"\*\|",
        "https://mailchimp.com/developer/marketing/docs/merge-fields/",
        "*|FNAME|* *|END:IF|*",
    ),
    PlaceholderKind(
        "formula between dollar signs",
        ANYWHERE,
        r"(?<!\$)\$\$(?![\s$])[^$\n]++(?<!\s)\$\$(?!\$)",
        r"\$\$",
        "https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting/"
        "writing-mathematical-expressions",
        "$$x^2$$ $$name$$",
    ),
    PlaceholderKind(
        "name between number signs of WordPress, TYPO3, GLPI and Bitrix",
        ANYWHERE,
        r"(?<![\w#])(?:###[A-Za-z][\w.:-]*+###|##[A-Za-z][\w.:-]*+##|#[A-Z][A-Z0-9_]++#)(?![\w#])",
        r"#",
        "https://developer.wordpress.org/reference/hooks/new_user_email_content/",
        "###SITENAME### ##ticket.title## #USER_NAME#",
    ),
    PlaceholderKind(
        "name between at signs of autoconf, CMake and Ant",
        ANYWHERE,
        r"(?<![\w@.+-])(?:@@[A-Za-z_][\w.-]*+@@|@[A-Za-z_][\w.-]*+@)(?![\w@])",
        "@",
        "https://cmake.org/cmake/help/latest/command/configure_file.html",
        "@VERSION@ @@name@@",
    ),
    PlaceholderKind(
        "argument in braces of ICU, Java, Python, .NET, Rust, Vue and Angular",
        f"{ANYWHERE} {_BRACE_FLAGS}",
        r"\{[\w.\[\]$@-]*+(?:![rsa])?(?:[:,][^{}\n]*+)?\}|\{ [\w.$-]++ \}",
        r"\{",
        "https://unicode-org.github.io/icu/userguide/format_parse/messages/",
        "{0} {1} {name} {user.name} {items[0]} {} {0:N2} {0,-10:C} {value!r} {0,number} {count,date,short} {:?} {$PH}",
    ),
    PlaceholderKind(
        "named argument of Python",
        f"{ANYWHERE} python-format",
        r"%\([^()\s]++\)[#0+ -]*+\d*+(?:\.\d++)?[hlL]?[diouxXeEfFgGcrsa]",
        "%",
        "https://docs.python.org/3/library/stdtypes.html#printf-style-string-formatting",
        "%(name)s %(count)d %(size)-5.1f",
    ),
    PlaceholderKind(
        "named argument of Ruby, integer of C99",
        f"{ANYWHERE} ruby-format c-format",
        r"%[-+0]?\d*+<\w++>(?:[-+\d.]*+[diouxXeEfgGscpaAbB](?!\w))?",
        "%<",
        "https://docs.ruby-lang.org/en/master/format_specifications_rdoc.html",
        "%<name>s %<size>.2f %<PRIu64>",
    ),
    PlaceholderKind(
        "name between percent signs of Windows, Symfony and Twig",
        ANYWHERE,
        r"%%\w++%%|%[A-Z_][A-Z0-9_]++%|%[A-Za-z_][A-Za-z0-9_.:-]{2,80}+%(?![%(\w$])",
        "%",
        "https://symfony.com/doc/current/translation.html#message-format",
        "%PATH% %count% %user.name% %%name%%",
    ),
    PlaceholderKind(
        "percent sign of printf", f"{ANYWHERE} {_PRINTF_FLAGS}", "%%", "%", f"{_GETTEXT}c_002dformat.html", "%%"
    ),
    PlaceholderKind(
        "argument of Drupal and Laravel",
        f"{UNFLAGGED} json",
        r"(?<![\w@.!:/+-])[@!:][a-z][a-z_-]{2,}+(?![\w@])",
        "[@!:][a-z]",
        "https://api.drupal.org/api/drupal/core%21lib%21Drupal%21Component%21Render%21FormattableMarkup.php",
        "@count !name :attribute",
    ),
    PlaceholderKind(
        "word after a percent sign of Drupal",
        UNFLAGGED,
        r"%[a-z][a-z_-]{3,}+",
        "%",
        "https://api.drupal.org/api/drupal/core%21lib%21Drupal%21Component%21Render%21FormattableMarkup.php",
        "%title %name %field-name",
    ),
    PlaceholderKind(
        "argument with a number of Object Pascal",
        f"{ANYWHERE} object-pascal-format",
        r"%\d++:[-\d.*]*+[dueEfFgGnNmMpPsSxX](?!\w)",
        "%",
        "https://www.freepascal.org/docs-html/rtl/sysutils/format.html",
        "%0:s %1:d",
    ),
    PlaceholderKind(
        "argument of printf",
        f"{ANYWHERE} {_PRINTF_FLAGS}",
        r"%(?:\d++\$)?[#0+',-]*+(?:\d++|\*(?:\d++\$)?)?(?:\.(?:\d++|\*))?(?:hh|h|ll|l|L|q|j|z|t|I64)?[diouxXeEfFgGaAcspn@]",
        "%",
        "https://pubs.opengroup.org/onlinepubs/9799919799/functions/fprintf.html",
        "%s %d %i %5d %-5.2f %05.1f %ld %1$s %2$d %@ %c %x %p %,d %n",
    ),
    PlaceholderKind(
        "argument of Go, representation of Python",
        f"{ANYWHERE} go-format python-format",
        r"%\[\d++\][a-zA-Z]|%[+#]?[vqtTUr](?![A-Za-z])",
        "%",
        "https://pkg.go.dev/fmt",
        "%v %+v %q %T %r %[1]d",
    ),
    PlaceholderKind(
        "argument of Qt, KDE and Boost",
        f"{ANYWHERE} qt-format qt-plural-format kde-format boost-format ycp-format smalltalk-format",
        r"%\d{1,2}+%(?![%(\w])|%L?\d{1,2}+",
        "%",
        "https://doc.qt.io/qt-6/qstring.html#arg",
        "%1 %2 %L1 %3%",
    ),
    PlaceholderKind(
        "directive with a space flag",
        "c-format python-format php-format perl-format",
        r"% [+]?\d*+[diouxXeEfgGs](?![A-Za-z])",
        "%",
        f"{_GETTEXT}c_002dformat.html",
        "",
    ),
    PlaceholderKind(
        "directive of JavaScript's console",
        "javascript-format",
        "%[oOjc]",
        "%",
        "https://console.spec.whatwg.org/#formatter",
        "%o %O %j",
    ),
    PlaceholderKind(
        "directive of Lisp and Scheme",
        "lisp-format scheme-format",
        r"~[-+\d,:@]*+[A-Za-z%&|~$<>{}\[\]();?^*]",
        "~",
        f"{_GETTEXT}lisp_002dformat.html",
        "~a ~S ~2d ~%",
    ),
    PlaceholderKind(
        "directive of GCC",
        "gcc-internal-format gfc-internal-format",
        r"%[+#]*+q?[A-Z<>'](?![A-Za-z])",
        "%",
        f"{_GETTEXT}gcc_002dinternal_002dformat.html",
        "%qD %< %> %T",
    ),
    PlaceholderKind(
        "variable of a shell or of browser extensions",
        f"{ANYWHERE} sh-format",
        r"\$[A-Za-z_@][\w@]*+\$|\$[A-Za-z_]\w*+",
        r"\$",
        "https://developer.chrome.com/docs/extensions/reference/api/i18n",
        "$HOME $name $COUNT$",
    ),
    PlaceholderKind(
        "numbered argument of MediaWiki and browser extensions",
        _KEYED,
        r"\$\d(?!\d|[.,]\d)",
        r"\$",
        "https://www.mediawiki.org/wiki/Help:System_message",
        "$1 $2",
    ),
    PlaceholderKind(
        "link of MediaWiki",
        _KEYED,
        r"\[\[[^\[\]|\n]++\||\[\[[^\[\]|\n]++\]\]|\]\]",
        r"\[\[ \]\]",
        "https://www.mediawiki.org/wiki/Help:Links",
        "[[Help:Contents]]",
    ),
    PlaceholderKind(
        "name between underscores of i18next and Node-RED",
        _KEYED,
        r"(?<!_)__[A-Za-z0-9.:-]++(?:_[A-Za-z0-9.:-]++)*+__(?!\w)",
        "__",
        "https://nodered.org/docs/creating-nodes/i18n",
        "__count__ __name__ __user_name__",
    ),
    PlaceholderKind(
        "linked message of Vue",
        _KEYED,
        r"(?<!\w)@(?:\.[a-z]++)?:(?:\([\w.]++\)|\{'[^'{}\n]*+'\}|[A-Za-z_][\w.-]*+)",
        "@",
        "https://vue-i18n.intlify.dev/guide/essentials/syntax.html#linked-messages",
        "@:message.hello @.lower:name @:(a.b)",
    ),
    PlaceholderKind(
        "reference to a resource of Android",
        ANYWHERE,
        r"@(?:[\w.]{1,60}+:)?(?:string|plurals|array|drawable|mipmap|color|dimen|style|id|layout|menu|attr)/\w++",
        "@",
        "https://developer.android.com/guide/topics/resources/providing-resources",
        "@string/app_name @android:string/ok",
    ),
    PlaceholderKind(
        "stand-in of machine translation",
        ANYWHERE,
        r"\[X\d++X\]",
        r"\[X",
        "https://github.com/translate/translate",
        "[X3X]",
    ),
    PlaceholderKind(
        "reference to a character of HTML and XML",
        ANYWHERE,
        r"&(?:[A-Za-z]\w*+|\#\d++|\#[xX][0-9a-fA-F]++);",
        "&",
        "https://html.spec.whatwg.org/multipage/syntax.html#character-references",
        "&amp; &nbsp; &#160; &#xA0;",
    ),
    PlaceholderKind(
        "path of Windows",
        ANYWHERE,
        r"(?:(?<![\w\\])(?:[A-Za-z]:\\|\\\\\w)|(?<=[A-Z]%)\\(?![nrtabfv0\\]))[^\s\"'<>|*?»“”]*+",
        r"\\",
        "https://learn.microsoft.com/windows/win32/fileio/naming-a-file",
        r"C:\x\y.txt \\host\share",
    ),
    PlaceholderKind(
        "command of LaTeX",
        ANYWHERE,
        r"\\(?:(?:eq|page|auto|name)?ref|[cC]ite[a-z]{0,8}+|label|include(?:graphics)?|input|url|begin|end|usepackage)\*?"
        r"(?:\[[^\[\]\n]{0,200}+\])?\{[^{}\n]{0,200}+\}"
        r"|\\(?:text(?:bf|it|tt|sc|rm|sf)|emph|underline|(?:sub){0,2}section|chapter|footnote|caption|item)(?![A-Za-z])",
        r"\\",
        "https://latexref.xyz/",
        r"\ref{fig:a} \cite[p.3]{knuth} \textbf \begin{itemize}",
    ),
    PlaceholderKind(
        "escape of C, Java and JavaScript",
        ANYWHERE,
        r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[nrtabfv0\\\"'])",
        r"\\",
        "https://en.cppreference.com/w/c/language/escape",
        r"\n \t \r \u00a0 \x1b \"",
    ),
    PlaceholderKind(
        "path of Unix",
        ANYWHERE,
        r"(?<=[A-Z]\})(?:/[\w.+@-]++)++/?"
        r"|(?<![\w/.<~])(?:~|\.{1,2})?(?:/[\w.+@-]++){2,}+/?|(?<![\w/.<])(?:~|\.{1,2})/[\w.+@-]++/?"
        r"|(?:(?<=\s)|(?<=[\"'(„“‚‘])|(?<![\s\S]))/[A-Za-z][\w.+@-]*+",
        "/",
        "https://pubs.opengroup.org/onlinepubs/9799919799/basedefs/V1_chap03.html",
        "/usr/lib/x.so ~/x ./x/y ../x/y",
    ),
    PlaceholderKind(
        "file name",
        ANYWHERE,
        rf"(?<![\w./*-])(?:\*|\w[\w-]*+)(?:[./][\w-]++)*\.(?i:{_FILE_ENDING})(?!\w)"
        rf"|(?<![\w.…*-])\.(?:{_FILE_ENDING})(?!\w)",
        r"\.\w",
        "https://www.iana.org/assignments/media-types/",
        "OmegaT.css config.yaml *.txt package-lock.json src/main.py .po",
    ),
    PlaceholderKind(
        "option of a command",
        "po markdown",
        r"(?<![\w-])--[a-z][a-z0-9]*+(?:-[a-z0-9]++)*+(?![\w-])",
        "--",
        "https://www.gnu.org/prep/standards/html_node/Command_002dLine-Interfaces.html",
        "--verbose --dry-run",
    ),
    PlaceholderKind(
        "identifier of a program",
        ANYWHERE,
        r"(?<![\w.:>])[A-Za-z_]\w*+(?:(?:\.|::|->)\w++)*+\(\)|(?<![\w&])[A-Z][A-Z0-9]*+(?:_[A-Z0-9]++)++(?!\w)"
        r"|(?<!\w)[A-Za-z][A-Za-z0-9]*+(?:_[A-Za-z0-9]++){2,}+(?!\w)"
        r"|(?<!\w)[a-z]{2,}+(?:(?!In(?:nen)?(?!\w))[A-Z][a-z0-9]++)++(?!\w)",
        r"_ \(\) [a-z][A-Z]",
        "https://docs.python.org/3/reference/lexical_analysis.html#identifiers",
        "MAX_SIZE os.getcwd() Qt::quit() last_user_name camelCase",
    ),
    PlaceholderKind(
        "identifier with one underscore",
        _WITHOUT_ACCELERATORS,
        r"(?<![\w&])[a-z][a-z0-9]*+_(?!in(?:nen)?(?!\w))[a-z0-9]++(?!\w)",
        "_",
        "https://docs.python.org/3/reference/lexical_analysis.html#identifiers",
        "user_name file_1",
    ),
)
