"""The site: ``make docs`` builds it, and takes warnings for errors."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.addnodes import pending_xref
from sphinx.util.logging import getLogger

_ROOT = Path(__file__).parent.parent
sys.path[:0] = str(_ROOT), str(_ROOT / "docs")
from parameters import described  # noqa: E402

_URLS = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["urls"]

project = "oda_rl"
author = "The oda_rl developers"
copyright = author
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
root_doc = "index"
templates_path = ["_templates"]
exclude_patterns = ["gallery/README.rst", "gallery/*.py"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
suppress_warnings = [
    "myst.xref_missing",  # links to files of the repository
    "ref.ref",  # what scikit-learn says of score() has labels of its own site
]

autosummary_generate = True
numpydoc_show_class_members = False
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": "",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "image_scrapers": ("matplotlib",),
    "reset_modules": (),
}

html_theme = "pydata_sphinx_theme"
html_title = "oda_rl"
html_logo = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["frame.js"]
html_theme_options = {
    "show_toc_level": 2,
    "header_links_before_dropdown": 4,
    "navbar_persistent": ["search-button"],  # a field would take a row of its own
    "logo": {"text": "oda_rl"},
    "icon_links": [
        {"name": name, "url": url, "icon": "fa-solid fa-code-branch"} for name, url in _URLS.items()
    ],
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"*": []}  # of single pages; examples and the reference have lists
html_math_renderer = "mathml"


def _visit_math(writer: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers draw with no script."""
    block = node.tagname == "math_block"
    formula = convert(node.astext(), display="block" if block else "inline")
    writer.body.append(f'<div class="formula">{formula}</div>' if block else formula)
    raise nodes.SkipNode


_WORDS = re.compile(
    r"\b(cell|codevector|partition|temperature|bifurcation|lineage|metric|confirm|rule|exemplar)"
    r"(?:s|ed|ation)?\b",
    re.IGNORECASE,
)
_NOT_LINKED = (
    nodes.title | nodes.reference | nodes.literal | nodes.literal_block | nodes.table | nodes.raw
    | nodes.comment | pending_xref
)  # fmt: skip


def _link_words(app: Any, page: Any) -> None:
    """Link the first use of each word of the glossary on a page of the guide."""
    if app.env.docname == "glossary":
        for row in page.findall(nodes.row):
            row["ids"].append(f"word-{row[0].astext()}")
    if "/" in app.env.docname or app.env.docname == "glossary":
        return
    linked: set[str] = set()
    for text in list(page.findall(nodes.Text)):
        around, parts, done = text.parent, [], 0
        while around is not None and not isinstance(around, _NOT_LINKED):
            around = around.parent
        for word in _WORDS.finditer(text) if around is None else ():
            name = word[1].lower()
            if name not in linked:
                linked.add(name)
                target = {"refuri": f"glossary.html#word-{name}", "classes": ["word"]}
                link = nodes.reference("", word[0], internal=True, **target)
                parts += [nodes.Text(text[done : word.start()]), link]
                done = word.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[done:])])


def _add_parameters(app: Any, kind: str, name: str, what: Any, _: Any, lines: list[str]) -> None:
    """Add usual parameters that a docstring does not describe; warn of others."""
    if kind in ("function", "method"):
        lines[:], unknown = described(what, lines)
        for one in unknown:
            getLogger(__name__).warning("%s says nothing of its parameter %s", name, one)


def _write_report(app: Any) -> None:
    """Learn a cart-pole, and write the page of its policy, which the front page shows."""
    command = [sys.executable, "-m", "oda_rl"]
    with TemporaryDirectory() as folder:
        words = ["--algo", "model", "--env-id", "CartPole-v1", "--total-timesteps", "500"]
        subprocess.run([*command, "train", *words, "--out", f"{folder}/run"], check=True)
        page = Path(app.outdir) / "policy.html"
        subprocess.run([*command, "report", f"{folder}/run", "--out", page], check=True)


def setup(app: Any) -> None:
    """Write formulas as MathML, describe parameters, link the glossary, and make the policy."""
    app.connect("autodoc-process-docstring", _add_parameters, priority=400)  # before numpydoc
    app.connect("doctree-read", _link_words)
    app.connect("builder-inited", _write_report)
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_math, None))
