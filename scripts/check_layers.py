"""Check the floor plan: who includes whom, what library code may call, how long files and functions are, import cycles.

    check_layers.py [ROOT]      ROOT: the project's top folder (default: the one this script lies in)

Prints a line per violation and exits with 1 if there is one. Warnings are printed and pass.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# What a file of a floor may include of libvmm/src: whole floors, or single headers. Siblings never include each other.
ALLOWED: dict[str, tuple[str, ...]] = {
    "base": ("base/",),
    "driver": ("base/", "driver/"),
    "sim": ("base/", "driver/driver.h", "sim/"),
    "index": ("base/", "index/"),
    "device": ("base/", "driver/driver.h", "index/", "device/"),
    "region": ("base/", "driver/driver.h", "index/", "device/", "region/"),
    "pool": ("base/", "driver/driver.h", "index/", "device/", "region/", "pool/"),
    "array": ("base/", "driver/driver.h", "index/", "device/", "region/", "array/"),
    "slots": ("base/", "driver/driver.h", "index/", "device/", "region/", "slots/"),
}
# Exceptions to that, the other way round: the index is pure data, without locks, waits, threads or the driver.
REFUSED: dict[str, tuple[str, ...]] = {
    "base": ("vmm/driver.h", "vmm/ops.def"),
    "index": ("base/lock.h", "base/clock.h", "vmm/driver.h", "vmm/ops.def", "pthread.h", "threads.h", "dlfcn.h"),
}
FORBIDDEN_CALLS = set(
    "abort exit _exit _Exit quick_exit longjmp siglongjmp setjmp sigsetjmp assert raise kill system popen "
    "getenv secure_getenv setenv putenv puts fputs putchar fputc fwrite perror printf fprintf sprintf "
    "snprintf vprintf vfprintf vsprintf vsnprintf dprintf strdup strndup asprintf".split()
)
HOST_MEMORY_CALLS = set("malloc calloc realloc free aligned_alloc posix_memalign".split())
HOST_MEMORY_HOME = "base/memory.c"
FRAMEWORKS = ("torch", "cupy", "numba", "cuda", "jax", "tensorflow")

FILE_WARN, FILE_FAIL = 400, 450
FUNCTION_WARN, FUNCTION_FAIL = 60, 70

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


@dataclass
class Report:
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def strip_c(text: str) -> str:
    """C source without comments and literals, line numbers kept."""
    return NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def c_functions(code: str) -> Iterator[tuple[str, int, int]]:
    """(name, first line, number of lines) of every function definition that starts in column 0."""
    lines = code.splitlines()
    first = 0
    for number, line in enumerate(lines, 1):
        if re.match(r"[A-Za-z_]", line) and "(" in line and not line.rstrip().endswith(";"):
            first = number
        elif line.startswith("}"):
            if first and line.rstrip() == "}":
                name = re.search(r"(\w+)\s*\(", lines[first - 1])
                yield (name.group(1) if name else "?", first, number - first + 1)
            first = 0
        elif line.startswith("#"):
            continue


def check_includes(name: str, floor: str, text: str, report: Report) -> None:
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        quoted, target = match.group(1) == '"', match.group(2)
        if target in REFUSED.get(floor, ()):
            report.errors.append(f"{name}:{line}: {floor}/ must not include {target}")
        elif quoted and not target.startswith("vmm/"):
            if "/" not in target:
                report.errors.append(f'{name}:{line}: "{target}" is written without its floor, as "{floor}/{target}"')
            elif not any(target == own or (own.endswith("/") and target.startswith(own)) for own in ALLOWED[floor]):
                report.errors.append(f"{name}:{line}: {floor}/ must not include {target}")
        elif re.match(r"cuda(_runtime)?(_api)?\.h$|cuda", target):
            report.errors.append(f"{name}:{line}: no CUDA header is needed to build: {target}")


def check_calls(name: str, path_in_src: str, code: str, report: Report) -> None:
    forbidden = FORBIDDEN_CALLS if path_in_src == HOST_MEMORY_HOME else FORBIDDEN_CALLS | HOST_MEMORY_CALLS
    for match in re.finditer(r"(?<![\w.>])(" + "|".join(sorted(forbidden)) + r")\s*\(", code):
        line = code.count("\n", 0, match.start()) + 1
        report.errors.append(f"{name}:{line}: library code must not call {match.group(1)}")


def check_lengths(name: str, text: str, functions: Iterator[tuple[str, int, int]], report: Report) -> None:
    length = text.count("\n")
    if length > FILE_FAIL:
        report.errors.append(f"{name}: {length} lines; {FILE_FAIL} are the limit")
    elif length > FILE_WARN:
        report.warnings.append(f"{name}: {length} lines; about {FILE_WARN} is meant")
    for function, line, lines in functions:
        if lines > FUNCTION_FAIL:
            report.errors.append(f"{name}:{line}: {function} has {lines} lines; {FUNCTION_FAIL} are the limit")
        elif lines > FUNCTION_WARN:
            report.warnings.append(f"{name}:{line}: {function} has {lines} lines; about {FUNCTION_WARN} is meant")


def check_c(root: Path, report: Report) -> None:
    src = root / "libvmm" / "src"
    files = sorted([*src.rglob("*.[ch]"), *(root / "libvmm" / "tests").rglob("*.[ch]")])
    files += sorted(path for folder in ("examples", "bench") for path in (root / "libvmm" / folder).rglob("*.[ch]"))
    files += sorted((root / "pyvmm").rglob("*.[ch]"))
    for path in files:
        name, text = str(path.relative_to(root)), path.read_text(encoding="utf-8")
        code = strip_c(text)
        if not text.startswith("/*"):
            report.errors.append(f"{name}:1: a file opens with a comment that says what it is for")
        check_lengths(name, text, c_functions(code), report)
        if src not in path.parents:
            continue
        inside = path.relative_to(src)
        floor = inside.parts[0]
        if floor not in ALLOWED or len(inside.parts) != 2:
            report.errors.append(f"{name}: libvmm/src/{inside.parent} is no floor")
            continue
        check_includes(name, floor, text, report)
        check_calls(name, str(inside), code, report)


def _module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run on import: not in functions, not under TYPE_CHECKING."""
    for statement in body:
        if isinstance(statement, ast.If):
            if "TYPE_CHECKING" not in ast.unparse(statement.test):
                yield from _module_level(statement.body)
            yield from _module_level(statement.orelse)
        elif isinstance(statement, ast.Try):
            for part in (statement.body, statement.orelse, statement.finalbody):
                yield from _module_level(part)
            for handler in statement.handlers:
                yield from _module_level(handler.body)
        elif isinstance(statement, (ast.With, ast.ClassDef)):
            yield from _module_level(statement.body)
        else:
            yield statement


def python_imports(tree: ast.Module, module: str, is_package: bool, known: set[str]) -> set[str]:
    """The modules of the package (and others, by their full name) that importing this one imports."""
    found: set[str] = set()
    for statement in _module_level(tree.body):
        if isinstance(statement, ast.Import):
            found.update(alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            if statement.level:
                parts = module.split(".")
                parts = parts[: len(parts) - statement.level + (1 if is_package else 0)]
                base = ".".join([*parts, base]) if base else ".".join(parts)
            for alias in statement.names:
                inner = f"{base}.{alias.name}"
                # `from . import x` is taken to mean a module, which may be a compiled one that has no file here
                found.add(inner if inner in known or (statement.level and not statement.module) else base)
    return found


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    state: dict[str, int] = {}
    path: list[str] = []

    def visit(node: str) -> list[str]:
        state[node] = 1
        path.append(node)
        for other in sorted(graph[node]):
            if state.get(other) == 1:
                return [*path[path.index(other) :], other]
            if other in graph and other not in state and (cycle := visit(other)):
                return cycle
        state[node] = 2
        path.pop()
        return []

    for node in sorted(graph):
        if node not in state and (cycle := visit(node)):
            return cycle
    return []


def check_python(root: Path, report: Report) -> None:
    package = root / "pyvmm"
    modules: dict[str, Path] = {}
    for path in sorted(package.rglob("*.py")):
        parts = list(path.relative_to(root).with_suffix("").parts)
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        imports = python_imports(tree, module, path.name == "__init__.py", set(modules))
        graph[module] = {name for name in imports if name in modules and name != module}
        for name in sorted(imports):
            if name.split(".")[0] in FRAMEWORKS:
                report.errors.append(f"{path.relative_to(root)}: imports {name}; importing must need no framework")
    # A package's __init__ gathers its modules; that they import single siblings through it is what makes a cycle.
    if cycle := find_cycle(graph):
        report.errors.append("import cycle: " + " -> ".join(cycle))
    for path in sorted([*modules.values(), *(root / "scripts").rglob("*.py"), *(root / "tests").rglob("*.py")]):
        name, text = str(path.relative_to(root)), path.read_text(encoding="utf-8")
        tree = ast.parse(text, filename=name)
        if text.strip() and ast.get_docstring(tree) is None:
            report.errors.append(f"{name}:1: a file opens with a docstring that says what it is for")
        functions = (
            (node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        )
        check_lengths(name, text, functions, report)


def check_tree(root: Path) -> Report:
    report = Report()
    check_c(root, report)
    if (root / "pyvmm").is_dir():
        check_python(root, report)
    return report


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    report = check_tree(root)
    for text in report.warnings:
        print(f"warning: {text}")
    for text in report.errors:
        print(f"error: {text}")
    print(f"layers: {len(report.errors)} errors, {len(report.warnings)} warnings")
    return 1 if report.errors else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
