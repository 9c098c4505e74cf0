"""Word, PowerPoint, Excel and PDF files of a few lines, made by hand, for tests of what is read of them."""

import io
import zipfile

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OTHERS = (
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" xmlns:v="urn:schemas-microsoft-com:vml" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
)
KIND = "application/vnd.openxmlformats-officedocument.wordprocessingml."


def docx(body: str, *, part: str = "document.xml", space: str = W, title: str = "", **more: str) -> bytes:
    """A docx of a ``body``; ``more``: other parts by name, in which NS stands for the namespaces."""
    spaces = f'xmlns:w="{space}" xmlns:r="{R}" {OTHERS}'
    kinds = {part: "document.main"} | {f"{name}.xml": name.rstrip("0123456789") for name in more}
    overrides = "".join(
        f'<Override PartName="/word/{name}" ContentType="{KIND}{kind}+xml"/>' for name, kind in kinds.items()
    )
    related = "".join(
        f'<Relationship Id="r{name}" Type="{R}/{name.rstrip("0123456789")}" Target="{name}.xml"/>' for name in more
    )
    core = (
        '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></cp:coreProperties>'
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">{overrides}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{R}/officeDocument" Target="word/{part}"/></Relationships>',
        f"word/_rels/{part}.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{related}</Relationships>',
        f"word/{part}": f"<w:document {spaces}><w:body>{body}</w:body></w:document>",
        **{f"word/{name}.xml": content.replace("NS", spaces) for name, content in more.items()},
        **({"docProps/core.xml": core} if title else {}),
    }
    return zipped(parts)


def zipped(parts: dict[str, str]) -> bytes:
    """An archive of ``parts`` by name."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def paragraph(text: str, style: str = "") -> str:
    """A paragraph of Word."""
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{styled}<w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def notes(kind: str, text: str) -> str:
    """The part of a docx with one foot- or endnote, and the line above it."""
    line = f'<w:{kind} w:type="separator" w:id="-1">{paragraph("LINE")}</w:{kind}>'
    return f'<w:{kind}s NS>{line}<w:{kind} w:id="1">{paragraph(text)}</w:{kind}></w:{kind}s>'


def pdf(
    *pages: bytes, encoding: bytes = b"/WinAnsiEncoding", catalog: bytes = b"", more: tuple[bytes, ...] = ()
) -> bytes:
    """A pdf whose ``pages`` are drawn by these operators; ``more``: objects behind those of the pages."""
    font = 3 + 2 * len(pages)
    kids = b" ".join(b"%d 0 R" % (3 + 2 * at) for at in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog,
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages)),
    ]
    for at, drawn in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 %d 0 R >> /XObject << /I %d 0 R >> >> >>" % (4 + 2 * at, font, font + 1)
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn))
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding %s >>" % encoding)
    objects.append(
        b"<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8 "
        b"/Length 1 >>\nstream\nx\nendstream"
    )
    out, places = b"%PDF-1.4\n", []
    for number, each in enumerate([*objects, *more], 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(places) + 1
    tail = b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, table) + tail


def lines(*texts: bytes) -> bytes:
    """Operators that draw lines of text on a page."""
    return b"BT /F1 12 Tf 72 700 Td 14 TL " + b" T* ".join(b"(%s) Tj" % text for text in texts) + b" ET"


PICTURE = b"q 100 0 0 100 72 600 cm /I Do Q"
