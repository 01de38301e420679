#!/usr/bin/env python3
"""Prepares build/docs for mkdocs: the pages of docs/, and under source/ every file of the project that they link to.

    tools/docs/site.py && mkdocs build --strict -f tools/docs/mkdocs.yml

Pages keep their links: a link that leaves docs/ leads to the copy under source/. Markdown files are copied as pages,
sources become pages with their text, and folders become lists of their files.
"""

import os
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import python_api  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "docs"
LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")
FENCE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.M | re.S)
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".py": "python", ".yaml": "yaml"}


def place(path):
    """Where a file of the project is on the site."""
    if path.is_relative_to(ROOT / "docs"):
        return path.relative_to(ROOT / "docs")
    inside = pathlib.Path("source") / path.relative_to(ROOT)
    if path.is_dir():
        return inside / "README.md"
    return inside if path.suffix in (".md", ".png") else inside.with_name(inside.name + ".md")


def page(path, wanted):
    """The text of a page; the files that it links to are added to wanted."""
    name = path.relative_to(ROOT)
    if path.is_dir():
        files = sorted(item for item in path.iterdir() if not item.name.startswith((".", "_")))
        return f"# {name}\n\n" + "".join(f"- `{item.name}`\n" for item in files)
    if path.suffix != ".md":
        return f"# {name}\n\n``` {LANGUAGES.get(path.suffix, 'text')}\n{path.read_text('utf-8').rstrip()}\n```\n"

    def moved(match):
        target = match[2]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        file = (path.parent / target).resolve()
        if not file.exists():
            return match[0]  # mkdocs says so
        if file.is_dir() and (file / "README.md").exists():
            file = file / "README.md"
        wanted.append(file)
        return match[1] + os.path.relpath(place(file), place(path).parent) + match[3]

    pieces = FENCE.split(path.read_text("utf-8"))
    return "".join(piece if piece.startswith("`") else LINK.sub(moved, piece) for piece in pieces)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    wanted = [*sorted((ROOT / "docs").rglob("*.md")),
              *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))]
    done = set()
    while wanted:
        path = wanted.pop()
        if path in done:
            continue
        done.add(path)
        target = OUT / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".png":
            shutil.copy(path, target)
        else:
            target.write_text(page(path, wanted), "utf-8")
    (OUT / "reference" / "python.md").write_text(python_api.page(ROOT), "utf-8")
    shutil.copy(ROOT / "tools" / "docs" / "site.css", OUT / "site.css")


if __name__ == "__main__":
    main()
