#!/usr/bin/env bash
# Builds the pages as a book, at target/book/html. mdBook comes from PATH, or is built into
# target/tools.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.5.4
target=${CARGO_TARGET_DIR:-target}
book=$(realpath -m "$target/book")
scripts/book.py "$book"
command -v mdbook >/dev/null || {
    echo "book: building mdBook $version into $target/tools"
    cargo install --quiet --locked --no-default-features --root "$target/tools" "mdbook@$version"
    PATH=$(realpath "$target/tools/bin"):$PATH
}
mdbook build "$book" --dest-dir "$book/html"
# Every link within the book leads to a file and, in it, to a section.
python3 - "$book/html" <<'END'
import html.parser, pathlib, sys, urllib.parse

top = pathlib.Path(sys.argv[1])

class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])

pages = {path.resolve(): Page(path) for path in top.glob("*.html")}
wrong = []
for path, page in pages.items():
    if path.name in ("print.html", "404.html", "toc.html"):
        continue
    for link in page.links:
        url = urllib.parse.urlsplit(link)
        if url.scheme:
            continue
        target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
        section = urllib.parse.unquote(url.fragment)
        if not target.exists() or section and target in pages and section not in pages[target].ids:
            wrong.append(f"{path.name}: {link}")
if wrong or len(pages) < 15:
    sys.exit("book: links lead nowhere:\n" + "\n".join(wrong))
print(f"book: {len(pages)} pages at {top}")
END
