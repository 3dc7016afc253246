"""What the site shows beside the pages of `docs/`: the README is its first page, and each linked file is a page.

Its rule: pages link files as they lie in the repository, which is what a forge shows; here such a link is led to the
page of the site, and one that leads nowhere stays as it is, so that the build reports it.
Limit: links in code, and links of HTML, are left as they are.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"

PAGES = {
    ROOT / "README.md": "index.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "SECURITY.md": "report.md",
    ROOT / "tests" / "README.md": "internals/tests.md",
    EXAMPLES / "clients" / "README.md": "programs.md",
}
"""Pages outside `docs/`, or of its programs, and where the site has them."""
LANGUAGES = {
    ".py": "python",
    ".json": "json",
    ".yaml": "yaml",
    ".conf": "text",
    ".service": "ini",
    ".go": "go",
    ".java": "java",
    ".rs": "rust",
    ".mjs": "js",
    ".sh": "sh",
}

PART = re.compile(r"^( *)(```+|~~~+).*?^ *\2 *$|`[^`\n]*`|(\]\()([^)\s]+)(\))", re.M | re.S)
"""A block of code, a span of code, or the end of a link."""


def on_config(config: MkDocsConfig) -> None:
    """Name the anchors of headings as a forge names them, so that one link works on both."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor


def anchor(heading: str, _separator: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def on_files(files: Files, *, config: MkDocsConfig) -> None:
    """Add the pages outside `docs/`, and each file and folder that a page links and that is no page."""
    for path, name in PAGES.items():
        files.append(File.generated(config, name, content=path.read_text("utf-8")))
    waiting = [*filter(is_page_of_docs, DOCS.rglob("*.md")), *PAGES]
    added: set[Path] = set()
    for page in waiting:
        for target in links_of(page):
            if page_of(target) is None or target in added or target in PAGES or is_page_of_docs(target):
                continue
            for path in (target, *contents(target)):
                if path not in added:
                    added.add(path)
                    files.append(File.generated(config, str(page_of(path)), content=shown(path)))


def on_page_markdown(markdown: str, *, page: Page, **_given: object) -> str:
    """Lead the links of a page to pages of the site."""
    place = next((path for path, name in PAGES.items() if name == page.file.src_uri), DOCS / page.file.src_uri)
    if page.file.src_uri.startswith("files/"):
        return markdown
    folder = posixpath.dirname(page.file.src_uri)

    def led(match: re.Match[str]) -> str:
        link = match[4]
        target = target_of(link, place) if link else None
        name = page_of(target) if target else None
        if name is None:
            return match[0]
        _, sign, fragment = link.partition("#")
        return f"{match[3]}{posixpath.relpath(name, folder or '.')}{sign}{fragment}{match[5]}"

    return PART.sub(led, markdown)


def is_page_of_docs(target: Path) -> bool:
    """Return whether the site has a file or a folder as it lies in `docs/`: all but the programs."""
    return DOCS in (target, *target.parents) and EXAMPLES not in (target, *target.parents)


def links_of(page: Path) -> Iterator[Path]:
    """Give the files and folders of the repository that a page links."""
    for match in PART.finditer(page.read_text("utf-8")):
        if match[4] and (target := target_of(match[4], page)):
            yield target


def target_of(link: str, page: Path) -> Path | None:
    """Return what a link of a page leads to, if that is a file or folder of the repository."""
    path = unquote(link.partition("#")[0])
    if not path or re.match(r"[a-z]+:", path):
        return None
    target = (page.parent / path).resolve()
    return target if target.exists() and ROOT in target.parents else None


def page_of(target: Path) -> str | None:
    """Return the name of the page of the site that shows a file or a folder; None for what is outside."""
    if target in PAGES:
        return PAGES[target]
    if is_page_of_docs(target):
        name = target.relative_to(DOCS).as_posix()
        return f"{name}/README.md" if target.is_dir() else name
    if ROOT not in target.parents:
        return None
    name = target.relative_to(ROOT).as_posix()
    return f"files/{name}/index.md" if target.is_dir() else f"files/{name}.md"


def contents(target: Path) -> list[Path]:
    """List what is in a folder, at any depth, and can be shown; nothing of a file."""
    if not target.is_dir():
        return []
    found = sorted(target.rglob("*"))
    return [path for path in found if not re.search(r"(^|/)(\.|__)", path.relative_to(target).as_posix())]


def shown(path: Path) -> str:
    """Write the page of a file, or of a folder."""
    title = f"# {path.relative_to(ROOT).as_posix()}\n\n"
    if path.is_dir():
        inside = (one for one in contents(path) if one.is_file())
        return title + "\n".join(f"- [{one.relative_to(path)}]({one.relative_to(path)}.md)" for one in inside) + "\n"
    text = path.read_text("utf-8")
    return f"{title}`````{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n`````\n"
