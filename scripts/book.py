#!/usr/bin/env python3
"""book.py DIRECTORY: the pages of docs/ and of the top directory as the source of a book (mdBook).

Pages become one directory, so links between them are rewritten. Other files that they link to are
copied beneath files/, and the book shows them as they are. A link to nothing is an error."""

import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s]+)\)")


def pages():
    """Pages by their path: those of docs/SUMMARY.md."""
    summary = (ROOT / "docs/SUMMARY.md").read_text()
    return [(ROOT / "docs" / link).resolve() for link in LINK.findall(summary)]


def name(page):
    """A page's name in the book, whose first is its index."""
    return "index.md" if page.name == "README.md" else page.name


def main():
    book = pathlib.Path(sys.argv[1])
    src = book / "src"
    shutil.rmtree(src, ignore_errors=True)
    src.mkdir(parents=True)
    known = pages()
    wrong = []

    def rewritten(page, link):
        path, hash_, section = link.partition("#")
        if "://" in link or not path:
            return link
        target = (page.parent / path).resolve()
        if target in known:
            return name(target) + hash_ + section
        if not target.is_file() or ROOT not in target.parents:
            wrong.append(f"{page.relative_to(ROOT)}: {link}")
            return link
        copy = pathlib.Path("files") / target.relative_to(ROOT)
        (src / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(target, src / copy)
        return str(copy)

    for page in [ROOT / "docs/SUMMARY.md", *known]:
        text = LINK.sub(lambda match: f"]({rewritten(page, match[1])})", page.read_text())
        (src / name(page)).write_text(text)
    shutil.copy(ROOT / "docs/book.toml", book / "book.toml")
    missing = set((ROOT / "docs").glob("*.md")) - set(known) - {ROOT / "docs/SUMMARY.md"}
    wrong += [f"docs/SUMMARY.md: no {page.name}" for page in missing]
    if wrong:
        sys.exit("book: not right:\n" + "\n".join(wrong))


main()
