"""Type stubs of modules whose names are derived at run time.

`python -m tests.tidy.stubs` (or `make stubs`) writes `rocketpy/__init__.pyi` from the table of
public names, and `rocketpy/sync.pyi` and `rocketpy/admin/sync.pyi` from the asynchronous classes
that the blocking ones are derived from: the annotations of their methods, in blocking form.
"""

import ast
import builtins
import functools
import importlib
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, get_args, get_origin, get_overloads

import rocketpy
from rocketpy.client.blocking import facade
from rocketpy.client.messages.message import ReceivedMessage

ROOT = Path(__file__).resolve().parents[2]
BLOCKING = ("rocketpy.sync", "rocketpy.admin.sync")
WRITTEN_BY = "# Written by `make stubs`.\n"
LINE_LENGTH = 100


@functools.cache
def imports_of(module: str) -> dict[str, str]:
    """Return the import statement of each name that a module imports or defines."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                renamed = f" as {alias.asname}" if alias.asname else ""
                name = alias.asname or alias.name
                found[name] = f"from {node.module} import {alias.name}{renamed}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = f"import {alias.name}"
    for name in vars(importlib.import_module(module)):
        found.setdefault(name, f"from {module} import {name}")
    return found


class BlockingForm(ast.NodeTransformer):
    """Rewrites an annotation of an asynchronous class.

    Args:
        types: arguments of the class's type variables, by name.
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._types.get(node.id, node.id))

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        kind = node.value.id if isinstance(node.value, ast.Name) else ""
        if kind == "Coroutine" and isinstance(node.slice, ast.Tuple):
            result: ast.AST = self.visit(node.slice.elts[2])
            return result
        item = ast.unparse(self.visit(node.slice))
        if kind == "AsyncIterator":
            return expression(f"Iterator[{item}]")
        if kind == "PolledBatches":
            return expression(f"Iterator[list[ReceivedMessage[{item}]]]")
        if kind == "BatchIterator":
            return expression(f"Iterator[list[{item}]]")
        self.generic_visit(node)
        return node


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@dataclass
class Stub:
    """The text of one stub, and the imports it needs."""

    own_names: set[str]
    imports: set[str] = field(default_factory=lambda: {"from collections.abc import Iterator"})
    lines: list[str] = field(default_factory=list)

    def parameter(self, node: ast.expr, module: str) -> str:
        """Return the annotation of a parameter; hooks get objects of the asynchronous classes."""
        types = {}
        for name in self.own_names & imports_of(module).keys():
            statement = imports_of(module)[name]
            if not statement.startswith("from rocketpy.client.blocking."):
                types[name] = f"Async{name}"
                self.imports.add(f"{statement} as Async{name}")
        return self.annotation(node, module, types)

    def annotation(self, node: ast.expr, module: str, types: Mapping[str, str]) -> str:
        """Return an annotation in blocking form, and import the names in it."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = expression(node.value)
        node = BlockingForm(types).visit(node)
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and each.id not in self.own_names:
                statement = imports_of(module).get(each.id)
                if statement is not None and not hasattr(builtins, each.id):
                    self.imports.add(statement)
        return ast.unparse(node)

    def text(self) -> str:
        imports = "\n".join(sorted(self.imports))
        return formatted(f"{WRITTEN_BY}{imports}\n\n" + "\n".join(self.lines) + "\n")


def formatted(text: str) -> str:
    """Return what ruff makes of a stub: imports sorted, those without a use removed."""
    lines = f"line-length = {LINE_LENGTH}"
    common = ["--config", lines, "--isolated", "--quiet", "--stdin-filename", "stub.pyi", "-"]
    for command in (["check", "--select=I,F401", "--fix", "--exit-zero"], ["format"]):
        ruff = [str(Path(sys.executable).with_name("ruff")), *command, *common]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def definition(function: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def hints_of(function: Callable[..., Any]) -> dict[str, tuple[ast.expr, str]]:
    """Return the annotation of each parameter and the module that it is written in.

    A function that takes the fields of a configuration class has their annotations.
    """
    found = {}
    for config in config_classes(function):
        for node in ast.parse(textwrap.dedent(inspect.getsource(config))).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = (node.annotation, config.__module__)
    inner = inspect.unwrap(function)
    arguments = definition(inner).args
    for each in [*arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if each is not None and each.annotation is not None:
            found[each.arg] = (each.annotation, inner.__module__)
    return found


def config_classes(function: Callable[..., Any]) -> list[type]:
    """Return the configuration class whose fields a function takes, bases first."""
    if not hasattr(function, "__signature__"):  # `keyword_options` sets it
        return []
    kind = inspect.get_annotations(inspect.unwrap(function))["config"]
    owner: Any = getattr(kind, "__origin__", kind)
    return [each for each in reversed(owner.__mro__) if each not in {object, Generic}]


def name_of(kind: Any) -> str:
    """Return the name of a type with those of its arguments."""
    arguments = ", ".join(map(name_of, get_args(kind)))
    owner: Any = getattr(kind, "__origin__", kind)
    return f"{owner.__name__}[{arguments}]" if arguments else str(owner.__name__)


def type_arguments(cls: type) -> dict[str, str]:
    """Return the arguments that a class gives to the type variables of its bases."""
    found: dict[str, str] = {}
    for base in getattr(cls, "__orig_bases__", ()):
        names = [each.__name__ for each in getattr(get_origin(base), "__parameters__", ())]
        found |= dict(zip(names, map(name_of, get_args(base)), strict=False))
    return found


def default_text(value: object) -> str:
    return repr(value) if value is None or type(value) in {bool, int, float, str} else "..."


def add_function(
    stub: Stub, name: str, function: Callable[..., Any], types: Mapping[str, str], indent: str = ""
) -> None:
    """Add a function, or its overloads if it has some."""
    for each in get_overloads(inspect.unwrap(function)):
        stub.imports.add("from typing import overload")
        stub.lines.append(f"{indent}@overload")
        add_signature(stub, name, each, types, indent)
    if not get_overloads(inspect.unwrap(function)):
        add_signature(stub, name, function, types, indent)


def add_signature(
    stub: Stub, name: str, function: Callable[..., Any], types: Mapping[str, str], indent: str
) -> None:
    """Add one signature of a function."""
    hints, inner = hints_of(function), inspect.unwrap(function)
    texts, is_by_name = [], False
    parameters = list(inspect.signature(function).parameters.values())
    if indent:
        texts, parameters = ["self"], parameters[1:]
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not is_by_name:
            texts.append("*")
        is_by_name = is_by_name or each.kind in {each.KEYWORD_ONLY, each.VAR_POSITIONAL}
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(each.kind.name, "")
        node, module = hints[each.name]
        default = "" if each.default is each.empty else f" = {default_text(each.default)}"
        texts.append(f"{stars}{each.name}: {stub.parameter(node, module)}{default}")
    returns = definition(inner).returns
    assert returns is not None, function
    result = stub.annotation(returns, inner.__module__, types)
    stub.lines.append(f"{indent}def {name}({', '.join(texts)}) -> {result}: ...")


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the members of a blocking class that its base does not have."""
    for name, value in sorted(vars(cls).items()):
        is_shown = name in {"__init__", "__iter__"} or not name.startswith("_")
        if is_shown and (isinstance(value, property) or inspect.isfunction(value)):
            yield name, value


def add_class(stub: Stub, cls: type, source: type) -> None:
    """Add a blocking class that is derived from an asynchronous one."""
    types = type_arguments(source)
    base = next(each for each in cls.__mro__[1:] if not each.__name__.startswith("_"))
    renamed = f"Async{base.__name__}" if base is ReceivedMessage else base.__name__
    if base.__name__ not in stub.own_names or base is ReceivedMessage:
        as_name = f" as {renamed}" if renamed != base.__name__ else ""
        stub.imports.add(f"from {base.__module__} import {base.__name__}{as_name}")
    if getattr(cls, "__parameters__", ()):  # all generic classes have the type of their bodies
        stub.imports |= {
            "from typing import Generic",
            "from rocketpy.client.messages.serializers import B_co",
        }
        is_argument = getattr(base, "__parameters__", ())
        renamed += "[B_co]" if is_argument else ", Generic[B_co]"
    body = "" if list(members(cls)) else " ..."
    stub.lines.append(f"class {cls.__name__}({renamed}):{body}")
    for name, value in members(cls):
        if name == "__iter__":
            stub.lines.append(f"    def __iter__(self) -> Iterator[{types['M']}]: ...")
        elif isinstance(value, property):
            assert value.fget is not None
            stub.lines.append("    @property")
            add_function(stub, name, value.fget, types, "    ")
        else:
            add_function(stub, name, value, types, "    ")
            if issubclass(cls, ReceivedMessage) and name in ReceivedMessage.__dict__.keys() - {
                "__init__"
            }:
                stub.lines[-1] += "  # type: ignore[override]"


def sources_of(module: ModuleType) -> dict[type, type]:
    """Return the asynchronous class of each blocking one."""
    return {made: source for source, made in facade._facades.items() if isinstance(made, type)}


def blocking_stub(name: str) -> str:
    """Return the stub of a module of blocking classes."""
    module: Any = importlib.import_module(name)
    stub = Stub(set(module.__all__))
    sources = sources_of(module)
    for each in module.__all__:
        value = getattr(module, each)
        if isinstance(value, type):
            add_class(stub, value, sources[value])
        else:
            add_function(stub, each, value, {})
    return stub.text()


def package_stub() -> str:
    """Return the stub of the package: an import for each public name."""
    lines = ["from rocketpy import errors as errors"]
    for name, module in rocketpy._MODULES.items():  # type: ignore[attr-defined]
        lines.append(f"from rocketpy.{module} import {name} as {name}")
    return formatted(WRITTEN_BY + "\n".join(lines) + "\n\n__version__: str\n")


def stubs() -> dict[Path, str]:
    """Return the text of each stub."""
    made = {ROOT / "rocketpy/__init__.pyi": package_stub()}
    for name in BLOCKING:
        made[ROOT / f"{name.replace('.', '/')}.pyi"] = blocking_stub(name)
    return made


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)
