"""The reference of the Python package as Markdown, from its sources alone: nothing is imported.

Public are the names in `__all__` of a module, or else its classes and functions without a leading underscore.
"""

import ast
import pathlib

MODULES = ["__init__", "accounting", "amplification", "events", "filters", "mechanism", "training", "sklearn",
           "torch/__init__", "ledger", "release", "unlearning", "compat", "random", "errors"]


def parsed(path):
    return ast.parse(path.read_text("utf-8"))


def public_names(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
            return ast.literal_eval(node.value)
    return [node.name for node in tree.body
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")]


def imported_from(tree):
    """Name → module that defines it, for names imported from the package."""
    return {alias.asname or alias.name: node.module for node in tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("discreet") for alias in node.names}


def doc(node):
    text = ast.get_docstring(node)
    return f"```text\n{text}\n```\n" if text else ""


def signature(node, name=None):
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name or node.name}({ast.unparse(node.args)}){returns}"


def of_class(node):
    fields = [ast.unparse(item) for item in node.body if isinstance(item, ast.AnnAssign) and not item.target.id.startswith("_")]
    bases = f"({', '.join(ast.unparse(base) for base in node.bases)})" if node.bases else ""
    out = [f"### `{node.name}`\n", f"```python\nclass {node.name}{bases}\n```\n", doc(node)]
    if fields:
        out.append("```python\n" + "\n".join(fields) + "\n```\n")
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and (not item.name.startswith("_") or item.name == "__init__"):
            if any(getattr(d, "attr", "") == "setter" for d in item.decorator_list):
                continue
            out += [f"#### `{node.name}.{item.name}`\n", f"```python\n{signature(item)}\n```\n", doc(item)]
    return out


def page(root: pathlib.Path) -> str:
    out = ["# Python\n",
           "Written from the sources by `make docs`. Names that come from the compiled core have no signature here; "
           "`help(name)` shows it.\n"]
    for module in MODULES:
        path = root / "python" / "discreet" / f"{module}.py"
        tree = parsed(path)
        name = "discreet" + ("" if module == "__init__" else "." + module.removesuffix("/__init__").replace("/", "."))
        origins, listed = imported_from(tree), []
        out += [f"## {name}\n", doc(tree)]
        for public in public_names(tree):
            node = next((n for n in tree.body if getattr(n, "name", "") == public), None)
            if node is None and module == "torch/__init__" and public in origins:
                source = root / "python" / (origins[public].replace(".", "/") + ".py")
                node = next((n for n in parsed(source).body if getattr(n, "name", "") == public), None)
            if isinstance(node, ast.ClassDef):
                out += of_class(node)
            elif isinstance(node, ast.FunctionDef):
                out += [f"### `{node.name}`\n", f"```python\n{signature(node)}\n```\n", doc(node)]
            else:
                listed.append(f"`{public}`")
        if listed:
            out.append(f"From other modules: {', '.join(listed)}.\n")
    return "\n".join(part for part in out if part) + "\n"
