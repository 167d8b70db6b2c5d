"""Hooks of MkDocs, named by ``mkdocs.yml``: pages from outside ``docs``, their links and their lists."""

from __future__ import annotations

from typing import Any

from release.project import ROOT
from release.site.dialect import to_python_markdown
from release.site.links import PROJECT_PAGES, rewrite_links


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
