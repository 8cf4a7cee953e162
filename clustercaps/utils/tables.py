"""Tables and names as plain text."""

from collections.abc import Sequence


def printable(text: str) -> str:
    r"""Text that is safe to print: control characters, such as terminal escapes, as `\x1b`."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with columns two spaces apart; numbers are right-aligned, cells made printable."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    right = [
        all(row[i][:1].isdigit() or row[i] in ("", "-") for row in rows) for i in range(len(header))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])
