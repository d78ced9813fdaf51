"""How the Markdown of this repository and the docstrings of the package become a site: hooks of MkDocs, see mkdocs.yml.

The same pages are read in the repository: links lead from file to file there, and where a file is no page of the site,
its place in the repository is shown instead. Formulas in TeX become MathML, which browsers draw by themselves.
"""

import html
import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.notebook import read_notebook

ROOT = Path(__file__).parents[1]
# Files outside docs/, or of another kind, that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "docs/tutorial.ipynb": "tutorial.md",
}
REFERENCE = "reference/"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", flags=re.DOTALL | re.MULTILINE)
ABSOLUTE = re.compile(r"[a-z]+:|#|/")
TEX = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.DOTALL)
ROLE = re.compile(r":math:`([^`]+)`")
DIRECTIVE = re.compile(r"^( *)\.\. math::((?:.*\n?)(?:(?:\1 +.*)?(?:\n|\Z))*)", flags=re.MULTILINE)
HYPERLINK = re.compile(r"`([^`<]+?)\s*<([^`>]+)>`_")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and those of the reference."""
    for source, page in PAGES.items():
        path = ROOT / source
        content = read_notebook(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=content))
    names = re.findall(rf"{REFERENCE}([\w.]+)\.md", str(config.nav))
    modules = [name for name in names if name not in ("index", "keys")]
    for name in names:
        files.append(File.generated(config, f"{REFERENCE}{name}.md", content=reference_page(name, modules)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links between files of the repository lead to pages of the site."""
    here = page.file.src_uri
    if here == "index.md":
        page.meta["hide"] = ["navigation"]  # a list of one page
    source = next((path for path, uri in PAGES.items() if uri == here), f"docs/{here}")

    def link(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        if ABSOLUTE.match(target):
            return match[0]
        path, hash_, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        uri = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
        if files.get_file_from_path(uri) is not None:
            return f"{picture}[{text}]({posixpath.relpath(uri, posixpath.dirname(here))}{hash_}{anchor})"
        if (ROOT / path).exists():
            return f'<abbr title="in the repository: {path}">{text}</abbr>'
        return match[0]  # the strict build says that it leads nowhere

    code = [match.span() for match in FENCE.finditer(markdown)]
    return LINK.sub(lambda m: m[0] if any(a <= m.start() < b for a, b in code) else link(m), markdown)


def on_page_content(html_text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write formulas as MathML."""

    def formula(match: re.Match[str]) -> str:
        return convert(html.unescape(match[3]).strip(), display="inline" if match[2] == "(" else "block")

    return TEX.sub(formula, html_text)


class Docstrings(griffe.Extension):
    """Docstrings as they are written here: formulas and links in reStructuredText, the rest in Markdown."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Translate the docstring; a field of a dataclass or a constant has the remark behind it."""
        if obj.docstring:
            obj.docstring.value = to_markdown(obj.docstring.value)
        elif obj.is_attribute and (text := remark(obj)):
            obj.docstring = griffe.Docstring(text, parent=obj)


def to_markdown(docstring: str) -> str:
    """The same docstring without directives, roles and hyperlinks of reStructuredText."""
    text = DIRECTIVE.sub(lambda m: f"{m[1]}$$\n{m[1]}{' '.join(m[2].split())}\n{m[1]}$$\n\n", docstring)
    text = HYPERLINK.sub(lambda m: f"[{' '.join(m[1].split())}]({m[2]})", ROLE.sub(r"\\(\1\\)", text))
    text = re.sub(r"^( *)Shapes:\n +", r"\1**Shapes:** ", text, flags=re.MULTILINE)
    return re.sub(r"^( *)Example:$", r"\1Examples:", text, flags=re.MULTILINE)


def remark(obj: griffe.Object) -> str:
    """The comment at the end of the line of an attribute."""
    if not isinstance(obj.filepath, Path) or obj.lineno is None:
        return ""
    _, _, text = obj.lines_collection[obj.filepath][obj.lineno - 1].partition("  # ")
    return text[:1].upper() + text[1:] + "." if text else ""


@cache
def package() -> griffe.Module:
    """The package as it is written; nothing of it is run."""
    loaded = griffe.load("gssc", search_paths=[ROOT], resolve_aliases=True)
    assert isinstance(loaded, griffe.Module)
    return loaded


def module(name: str) -> griffe.Object | griffe.Alias:
    """A module of the package, by its full name."""
    return package() if name == "gssc" else package()[name.removeprefix("gssc.")]


def public(name: str) -> list[griffe.Object | griffe.Alias]:
    """What a module offers: what its ``__all__`` lists or, without one, what is defined in it."""
    members, exports = module(name).members, module(name).exports
    if exports is not None:
        return [members[str(exported)] for exported in sorted(exports, key=str)]
    return [member for _, member in sorted(members.items()) if member.is_public]


def reference_page(name: str, modules: list[str]) -> str:
    """A page for a module. That of the package itself has what no other page has."""
    if name == "index":
        return all_names()
    if name == "keys":
        return all_keys()
    options = ""
    if name == "gssc":
        elsewhere = {member.canonical_path for other in modules if other != name for member in public(other)}
        own = [m.name for m in public(name) if not m.is_module and m.canonical_path not in elsewhere]
        options = f"\n    options:\n      members: [{', '.join(own)}]"
    return f"# {name}\n\n::: {name}{options}\n"


def all_names() -> str:
    """A table of all that ``import gssc`` offers, each with the first line of its docstring."""
    lines = ["# All names", "", "What `import gssc` offers.", "", "| name | what it is |", "|---|---|"]
    for member in public("gssc"):
        link = f"gssc.{member.name}.md" if member.is_module else ""
        about = to_markdown(member.docstring.value).split("\n")[0] if member.docstring else ""
        shown = f"[`gssc.{member.name}`]({link})" if link else f"[`gssc.{member.name}`][{member.canonical_path}]"
        lines.append(f"| {shown} | {about} |".replace("\\(", "\\("))
    return "\n".join(lines) + "\n"


def all_keys() -> str:
    """A table for each section of a recipe: its keys as gssc/config.py has them, in the words of a recipe."""
    lines = ["# Keys of recipes", "", "Any of them can be changed behind `gssc train RECIPE`, as `section.key=value`."]
    for section in module("gssc.config").classes.values():
        if section.name.endswith("Config"):
            name = section.name.removesuffix("Config").lower()
            about = section.docstring.value if section.docstring else ""
            lines += ["", f"## {name}", "", about, "", "| key | default | choices | meaning |", "|---|---|---|---|"]
            for key in section.attributes.values():
                if "property" not in key.labels:
                    default = re.sub(r"['\"]", "", str(key.value or "")).replace("None", "null")
                    default = default.lower() if default in ("True", "False") else default
                    choices = ", ".join(re.findall(r"'(\w+)'", str(key.annotation)))
                    cells = [f"`{name}.{key.name}`", f"`{default}`" if default else "", choices, remark(key)]
                    lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
