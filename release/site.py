"""The documentation site: hooks of MkDocs, which mkdocs.yml names, for pages in GitHub's Markdown.

Python-Markdown wants four spaces for what belongs to a list item, and a blank line before a list. GitHub
takes the width of the item's marker, and no blank line. Links lead to where the site has a page.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from release.project import ROOT

PROJECT_PAGES: Final = {
    "docker/README.md": "project/containers.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changes.md",
    "SECURITY.md": "project/security-policy.md",
}
"""Pages of the repository outside ``docs``, and where the site has them."""
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"(`+)(?:(?!\1).)+\1")
_FENCE: Final = re.compile(r"^\s*(`{3,}|~{3,})")
_ITEM: Final = re.compile(r"^( *)([-*+]|\d{1,9}[.)])( +)(?=\S)")
_LEVEL: Final = "    "


def rewrite_links(text: str, source: str) -> str:
    """Let links lead to the same pages on the site; one to a file that it does not have is its text alone."""
    parts = re.split(r"(?m)(^\s*(?:`{3,}|~{3,})[^\n]*\n.*?^\s*(?:`{3,}|~{3,})\s*?$)", text, flags=re.DOTALL)
    # Every second part is a block of code.
    return "".join(part if number % 2 else _rewrite(part, source) for number, part in enumerate(parts))


def site_path(file: str) -> str | None:
    """Return where the site has a file of the repository, below its pages; None if it does not have it."""
    if file in PROJECT_PAGES:
        return PROJECT_PAGES[file]
    if file == "README.md":
        return "index.md"
    if file.rstrip("/") == "docs/adr":
        return "adr/README.md"
    return file.removeprefix("docs/") if file.startswith("docs/") else None


def github_anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def _rewrite(text: str, source: str) -> str:
    page = site_path(source) or source
    spans: list[str] = []

    def kept(match: re.Match[str]) -> str:
        spans.append(match[0])
        return f"\0{len(spans) - 1}\0"

    def moved(match: re.Match[str]) -> str:
        mark_of_image, label, target = match[1], match[2], match[3]
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return match[0]
        file, mark, anchor = target.partition("#")
        there = site_path(posixpath.normpath(posixpath.join(posixpath.dirname(source), file)))
        if there is None:
            return label
        path = posixpath.relpath(there, posixpath.dirname(page) or ".")
        return f"{mark_of_image}[{label}]({path}{mark}{anchor})"

    # Code spans are no links, but a link's text may have some, also over a line's end.
    hidden = re.sub(_CODE.pattern, kept, text, flags=re.DOTALL)
    rewritten = _LINK.sub(moved, hidden)
    return re.sub(r"\0(\d+)\0", lambda match: spans[int(match[1])], rewritten)


def to_python_markdown(text: str) -> str:
    """Indent the lists of a page by four spaces a level, each after a blank line."""
    return "\n".join(_lines(text.splitlines())) + "\n"


def _lines(lines: Iterable[str]) -> Iterator[str]:
    # The columns at which the contents of the open items begin, the outermost first.
    columns: list[int] = []
    fence = ""
    previous = ""
    has_paragraphs = False
    for line in lines:
        found = _FENCE.match(line)
        if fence:
            yield _indented(line, columns)
            fence = "" if found and found[1].startswith(fence) else fence
            previous = line
            continue
        if not line.strip():
            yield ""
            previous = ""
            has_paragraphs = True
            continue
        item = _ITEM.match(line)
        begins_list = item is not None and not columns
        if item and begins_list and previous and item[2][0].isdigit() and item[2][:-1] != "1":
            # A sentence whose line happens to begin with a number: only a 1 begins a list inside a paragraph.
            item = None
        indent = len(line) - len(line.lstrip())
        # A line that continues a paragraph needs no indent; an item, or a line after a blank one, does.
        if item or not previous or found:
            while columns and indent < columns[-1]:
                columns.pop()
        if item:
            # The next item after an item's second paragraph needs one, too.
            if previous and (begins_list or has_paragraphs):
                yield ""
            has_paragraphs = False
            yield _LEVEL * len(columns) + line.lstrip()
            columns.append(indent + len(item[2]) + len(item[3]))
        else:
            yield _indented(line, columns)
        if found:
            fence = found[1]
        previous = line


def _indented(line: str, columns: list[int]) -> str:
    """Move a line of the innermost open item to the depth that Python-Markdown expects."""
    if not columns or not line.strip():
        return line
    own = len(line) - len(line.lstrip())
    return _LEVEL * len(columns) + " " * max(own - columns[-1], 0) + line.lstrip()


def on_files(files: Any, config: Any) -> Any:
    """Add the repository's other pages to the site."""
    from mkdocs.structure.files import File

    for source, page in PROJECT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    """Translate a page from GitHub's Markdown, with its links."""
    sources = {there: source for source, there in PROJECT_PAGES.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return to_python_markdown(rewrite_links(markdown, source))
