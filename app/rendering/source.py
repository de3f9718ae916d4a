"""Reading a template: what the engine offers is let through, everything else is named with its line.

The list is of what is allowed, not of what is forbidden: no macros, includes, imports, inheritance, blocks or
calls (but for `range`), so a template can reach nothing but its values and the filters, and cannot recurse. What
is let through is then rewritten so that all that makes a text or repeats itself goes through a filter that counts.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any, cast

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.meta import find_undeclared_variables

from app.rendering.limits import DEPTH, NODES, SOURCE_CHARACTERS, Fault, TemplateSyntaxFault

COUNTED = "_counted"
JOINED = "_joined"
SLICED = "_sliced"
SCALAR = "_scalar"
STEP = "_step"

RESERVED = frozenset({"loop", "range", "self", "super", "caller", "varargs", "kwargs", "true", "false", "none",
                      "True", "False", "None", "not", "and", "or", "in", "is", "if", "else"})  # fmt: skip
FAULTS_SHOWN = 20

_FUNCTIONS = frozenset({"range"})
_ALLOWED: tuple[type[nodes.Node], ...] = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.If,
    nodes.For,
    nodes.With,
    nodes.Assign,
    nodes.Name,
    nodes.Const,
    nodes.Getattr,
    nodes.Getitem,
    nodes.Slice,
    nodes.Compare,
    nodes.Operand,
    nodes.And,
    nodes.Or,
    nodes.Not,
    nodes.Add,
    nodes.Sub,
    nodes.Mul,
    nodes.Div,
    nodes.FloorDiv,
    nodes.Mod,
    nodes.Neg,
    nodes.Pos,
    nodes.Concat,
    nodes.CondExpr,
    nodes.Filter,
    nodes.Test,
    nodes.Call,
    nodes.Keyword,
    nodes.List,
    nodes.Tuple,
    nodes.Dict,
    nodes.Pair,
)
_CALLED = {
    nodes.Macro: "macros are not offered",
    nodes.CallBlock: "call blocks are not offered",
    nodes.Include: "include is not offered",
    nodes.Import: "import is not offered",
    nodes.FromImport: "import is not offered",
    nodes.Extends: "inheritance is not offered",
    nodes.Block: "blocks are not offered",
    nodes.AssignBlock: "set blocks are not offered; use {% set name = value %}",
    nodes.FilterBlock: "filter blocks are not offered; use {{ value|filter }}",
    nodes.Pow: "** is not offered",
    nodes.ScopedEvalContextModifier: "autoescape cannot be changed",
}
_MEMBERSHIP = frozenset({"in", "notin"})
# The parser names what it met in its own terms; these say them in ours.
_UNKNOWN = re.compile(r"No (filter|test) named '?([^'.]*)'?\.?")


def read(environment: Environment, source: str, variables: Collection[str] | None = None) -> nodes.Template:
    """Return the tree of a template, rewritten to be counted.

    With `variables`, a name that is none of them is a fault too. Raises TemplateSyntaxFault with every fault that
    was found, up to 20.
    """
    if len(source) > SOURCE_CHARACTERS:
        raise TemplateSyntaxFault([Fault(0, f"longer than {SOURCE_CHARACTERS} characters")])
    try:
        tree = environment.parse(source)
        faults = _faults(environment, tree)
        if not faults and variables is not None:
            faults = _undeclared(tree, variables)
    except TemplateSyntaxError as error:
        raise TemplateSyntaxFault([Fault(error.lineno, _sentence(error))]) from None
    except RecursionError:
        raise TemplateSyntaxFault([Fault(0, f"nested deeper than {DEPTH} levels")]) from None
    if faults:
        raise TemplateSyntaxFault(faults[:FAULTS_SHOWN])
    _rewrite(tree)
    return tree


def _sentence(error: TemplateSyntaxError) -> str:
    text = error.message or "cannot be read"
    return text[0].lower() + text[1:].rstrip(".")


def _walk(tree: nodes.Node) -> Iterator[tuple[nodes.Node, int]]:
    """Yield each node with its depth; without recursion, since a hostile tree is deep."""
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting.extend((child, depth + 1) for child in node.iter_child_nodes())


def _faults(environment: Environment, tree: nodes.Template) -> list[Fault]:
    faults: list[Fault] = []
    for count, (node, depth) in enumerate(_walk(tree)):
        if depth > DEPTH:
            return [Fault(node.lineno, f"nested deeper than {DEPTH} levels")]
        if count > NODES:
            return [Fault(0, f"has more than {NODES} parts")]
        fault = _fault(environment, node)
        if fault:
            faults.append(Fault(node.lineno or 0, fault))
    return sorted(set(faults), key=lambda each: (each.line, each.message))


def _fault(environment: Environment, node: nodes.Node) -> str | None:
    return _forbidden_name(environment, node) or _forbidden_form(node)


def _forbidden_name(environment: Environment, node: nodes.Node) -> str | None:  # noqa: PLR0911  one a kind
    match node:
        case nodes.Filter(node=None):
            return _CALLED[nodes.FilterBlock]
        case nodes.Filter(name=name) if name.startswith("_") or name not in environment.filters:
            return f"unknown filter {name!r}"
        case nodes.Test(name=name) if name not in environment.tests:
            return f"unknown test {name!r}"
        case nodes.Name(name=name) if name.startswith("_") or name in {"self", "super", "caller"}:
            return f"the name {name!r} is not offered"
        case nodes.Name(name="range" | "loop", ctx="store"):
            return f"the name {node.name!r} is taken"
        case nodes.Getattr(attr=name) if name.startswith("_"):
            return f"the attribute {name!r} is not offered"
        case nodes.Getitem(arg=nodes.Const(value=str(name))) if name.startswith("_"):
            return f"the attribute {name!r} is not offered"
    return None


def _forbidden_form(node: nodes.Node) -> str | None:  # noqa: PLR0911  one a kind
    match node:
        case nodes.For(recursive=True):
            return "recursive loops are not offered"
        case nodes.Call(node=called) if not (isinstance(called, nodes.Name) and called.name in _FUNCTIONS):
            return "nothing can be called but range and filters"
        case nodes.Tuple(ctx="load"):
            return "tuples are not offered; use a [list]"
        case nodes.Pair(key=key) if not isinstance(key, nodes.Const):
            return "keys of a {…} must be constants"
        case nodes.Call() | nodes.Filter() | nodes.Test() if node.dyn_args or node.dyn_kwargs:
            return "arguments cannot be unpacked"
        case _ if not isinstance(node, _ALLOWED):
            return _CALLED.get(type(node), f"{type(node).__name__.lower()} is not offered")
    return None


def _undeclared(tree: nodes.Template, variables: Collection[str]) -> list[Fault]:
    unknown = find_undeclared_variables(tree) - set(variables) - _FUNCTIONS
    lines: dict[str, int] = {}
    for node, _ in _walk(tree):
        if isinstance(node, nodes.Name) and node.name in unknown:
            lines[node.name] = min(node.lineno, lines.get(node.name, node.lineno))
    return [Fault(line, f"the variable {name!r} is not declared") for name, line in sorted(lines.items())]


def _rewrite(node: nodes.Node) -> None:
    """Put a counting filter around what repeats, joins, slices or compares. Depth is bounded by now."""
    for name, value in list(node.iter_fields()):
        if isinstance(value, list):
            setattr(node, name, [_rewritten(each) if isinstance(each, nodes.Node) else each for each in value])
        elif isinstance(value, nodes.Node):
            setattr(node, name, _rewritten(value))
    if isinstance(node, nodes.For):
        node.iter = _filter(node.iter, COUNTED)
    elif isinstance(node, nodes.Compare):
        node.expr = _filter(node.expr, SCALAR)
        for operand in node.ops:
            operand.expr = _filter(operand.expr, STEP if operand.op in _MEMBERSHIP else SCALAR)


def _rewritten(node: nodes.Node) -> nodes.Node:
    _rewrite(node)
    if isinstance(node, nodes.Concat):
        return _filter(nodes.List(node.nodes, lineno=node.lineno), JOINED)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        part = node.arg
        bounds: list[Any] = [each or nodes.Const(None) for each in (part.start, part.stop, part.step)]
        return _filter(node.node, SLICED, bounds)
    return node


def _filter(node: nodes.Node, name: str, arguments: list[nodes.Expr] | None = None) -> nodes.Filter:
    # Whatever stands here is an expression: the grammar has nothing else in these places.
    return nodes.Filter(cast("nodes.Expr", node), name, arguments or [], [], None, None, lineno=node.lineno)
