"""The documentation site: hooks of MkDocs, which mkdocs.yml names, for pages in GitHub's Markdown.

Python-Markdown wants four spaces for what belongs to a list item, GitHub the width of the item's marker.
Links lead to where the site has a page.
"""

import posixpath
import re
from typing import Any, Final

from markdown import Markdown
from markdown.blockprocessors import (
    CodeBlockProcessor,
    ListIndentProcessor,
    OListProcessor,
    UListProcessor,
)
from markdown.extensions import Extension

from release.project import ROOT

PROJECT_PAGES: Final = {
    "docker/README.md": "project/containers.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changes.md",
    "SECURITY.md": "project/security-policy.md",
}
"""Pages of the repository outside ``docs``, and where the site has them."""
_CODE_OR_LINK: Final = re.compile(
    r"""
    ^[ \t]*(?P<fence>`{3,}|~{3,}).*?^[ \t]*(?P=fence)  # a block of code
    | (?P<tick>`+)(?:(?!(?P=tick)).)+(?P=tick)  # a span of code
    | (?P<image>!?)\[(?P<label>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)


def rewrite_links(text: str, source: str) -> str:
    """Let links lead to the same pages on the site; one to a file that it does not have is its text alone."""
    page = site_path(source) or source

    def moved(match: re.Match[str]) -> str:
        image, label, target = match["image"], match["label"], match["target"]
        if target is None or re.match(r"[a-z]+:|#", target):
            return match[0]
        file, mark, anchor = target.partition("#")
        there = site_path(posixpath.normpath(posixpath.join(posixpath.dirname(source), file)))
        if there is None:
            return label
        path = posixpath.relpath(there, posixpath.dirname(page) or ".")
        return f"{image}[{label}]({path}{mark}{anchor})"

    return _CODE_OR_LINK.sub(moved, text)


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


class GitHubLists(Extension):  # type: ignore[misc]  # Python-Markdown ships no types
    """What belongs to a list item is indented by two spaces or more; a blank line precedes a list."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  # Python-Markdown's name
        """Replace the processors that compute with the width of an indent when they are made."""
        md.tab_length = 2
        kinds = {"indent": ListIndentProcessor, "code": CodeBlockProcessor}
        kinds |= {"olist": OListProcessor, "ulist": UListProcessor}
        for name, priority in (("indent", 90), ("code", 80), ("olist", 40), ("ulist", 30)):
            md.parser.blockprocessors.register(kinds[name](md.parser), name, priority)


def on_files(files: Any, config: Any) -> Any:
    """Add the repository's other pages to the site."""
    from mkdocs.structure.files import File

    for source, page in PROJECT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    """Translate the links of a page."""
    sources = {there: source for source, there in PROJECT_PAGES.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return rewrite_links(markdown, source)
