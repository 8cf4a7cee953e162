"""How the reference shows tensors, as `Float[batch, classes]`, and settings, with their help."""

import ast
from dataclasses import fields, is_dataclass
from typing import Any

from griffe import (
    Attribute,
    Docstring,
    Expr,
    ExprCall,
    ExprName,
    Extension,
    Function,
    Module,
)


def shape_of(expression: Any) -> str | None:
    """`Float[Tensor, "batch classes"]` as `Float[batch, classes]`; None for anything else."""
    elements = getattr(getattr(expression, "slice", None), "elements", ())
    if len(elements) != 2 or str(elements[0]) != "Tensor":
        return None
    axes = axes_of(str(elements[1]))
    return f"{expression.left}[{', '.join(axes) or '()'}]"


def axes_of(shape: str) -> list[str]:
    """The names of the axes, from `"batch *parent"` or from what Griffe makes of it."""
    if shape[0] not in "'\"":
        # A shape that is also an expression is parsed as one: as a name, or as a product.
        shape = shape.replace(" * ", " *")
    return shape.strip("'\" ").split()


def readable(annotation: Any, module: Module) -> Any:
    """An annotation with short shapes, also where the module has a name of its own for one."""
    shape = shape_of(annotation)
    if shape is not None:
        return ExprName(shape)
    if isinstance(annotation, ExprName):
        meaning = meaning_of(annotation.name, module)
        return annotation if meaning is None else readable(meaning, module)
    if isinstance(annotation, Expr) and is_dataclass(annotation):
        for field in fields(annotation):
            inner = getattr(annotation, field.name)
            if isinstance(inner, list):
                setattr(annotation, field.name, [readable(each, module) for each in inner])
            elif isinstance(inner, Expr) and field.name != "parent":
                setattr(annotation, field.name, readable(inner, module))
    return annotation


def meaning_of(name: str, module: Module) -> Expr | None:
    """The value of a type alias such as `Votes`, which may be imported from another module."""
    found: Any = module.members.get(name)
    while found is not None and found.is_alias:
        path = found.target_path
        package, _, rest = path.partition(".")
        found = module.package.get_member(rest) if package == module.package.name else None
    is_type = isinstance(found, Attribute) and found.annotation is None
    # Types are CamelCase, constants are capitals.
    if not is_type or name.isupper() or not isinstance(found.value, Expr):
        return None
    return None if isinstance(found.value, ExprCall) else found.value


class Reference(Extension):
    """Rewrites annotations and settings once the package is loaded."""

    def on_package(self, *, pkg: Module, **kwargs: Any) -> None:
        """Rewrite every module of the package."""
        for module in modules(pkg):
            for member in [*module.members.values()]:
                visit(member, module)


def modules(module: Module) -> list[Module]:
    """A module and those below it."""
    below = [each for each in module.members.values() if not each.is_alias and each.is_module]
    return [module, *(inner for each in below for inner in modules(each))]


def visit(member: Any, module: Module) -> None:
    """Rewrite a function, an attribute, or all of a class."""
    if member.is_alias or member.is_module:
        return
    if isinstance(member, Function):
        for each in [member, *(member.overloads or [])]:
            each.returns = readable(each.returns, module)
            for parameter in each.parameters:
                parameter.annotation = readable(parameter.annotation, module)
    elif isinstance(member, Attribute):
        member.annotation = readable(member.annotation, module)
        describe_setting(member)
    else:
        for inner in member.members.values():
            visit(inner, module)
        # What a module prints about itself is no part of how to use it.
        member.members.pop("extra_repr", None)


def describe_setting(attribute: Attribute) -> None:
    """Take the help of `setting("help", default)` as docstring, and the default as value."""
    call = attribute.value
    if not isinstance(call, ExprCall) or str(call.function) != "setting":
        return
    words, *default = call.arguments
    text = ast.literal_eval(str(words))
    attribute.docstring = Docstring(text[0].upper() + text[1:] + ".", parent=attribute)
    attribute.value = default[0] if default else None
