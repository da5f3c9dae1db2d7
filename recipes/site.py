"""Lets the documentation be read in the repository and on the site alike; mkdocs.yml names this file twice.

As a hook of MkDocs: pages link to files outside docs/, as to model cards, the changelog or a schema. In the repository
such a link leads to the file. For the site each of these files is added under `project/`, with all that it links to,
and the links are bent.

As an extension of Griffe, which reads docstrings: examples at a prompt become blocks of code.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PROMPT = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
ROW = re.compile(r"`[^`\n]*`(?=.*\|$)", re.MULTILINE)
LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside docs/."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    while waiting:
        page = waiting.pop()
        for _, link in LINK.findall((ROOT / page).read_text("utf-8")):
            target = _target(page, link)
            if target.startswith("docs/") or files.get_file_from_path(_uri(target)) or not (ROOT / target).is_file():
                continue
            files.append(File.generated(config, _uri(target), abs_src_path=str(ROOT / target)))
            if target.endswith(".md"):
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Bend the links of a page; in code inside a table, a bar needs no backslash here, as it does on GitHub."""
    here = page.file.src_uri
    source = here.removeprefix("project/") if here.startswith("project/") else f"docs/{here}"

    def bent(link: re.Match[str]) -> str:
        return link[1] + posixpath.relpath(_uri(_target(source, link[2])), posixpath.dirname(here) or ".")

    return ROW.sub(lambda row: row[0].replace(r"\|", "|"), LINK.sub(bent, markdown))


def _target(page: str, link: str) -> str:
    """The file that a link leads to, as a path of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _uri(path: str) -> str:
    """Where a file of the repository stands on the site."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"


class Prompts(griffe.Extension):  # type: ignore[misc]
    """Fences examples that begin with `>>>`, which Markdown would take for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for everything that has been read."""
        if obj.docstring:
            text = re.sub(r" *# doctest: .*", "", obj.docstring.value)
            obj.docstring.value = PROMPT.sub(lambda example: f"```pycon\n{example[0]}\n```", text)
