"""What a user installs: the C library by three ways of finding it, the headers in every dialect, the wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBVMM = ROOT / "libvmm"
BIN = Path(sys.executable).parent
HEADERS = ("vmm/vmm.h", "vmm/error.h", "vmm/device.h", "vmm/pool.h", "vmm/driver.h")
WARNINGS = (
    "-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wcast-qual -Wundef -Wvla"
).split()
VERSION = re.search(r"project\(vmm VERSION ([0-9.]+)", (LIBVMM / "CMakeLists.txt").read_text())

pytestmark = pytest.mark.packaging

CONSUMER = """
#include <stdio.h>
#include <vmm/driver.h>
#include <vmm/vmm.h>
int main(void) { return printf("%s %s", vmm_version_string(), vmm_status_name(VMM_ERROR_NOT_READY)) < 0; }
"""
CONSUMER_CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES C)
{find}
add_executable(consumer main.c)
target_link_libraries(consumer PRIVATE vmm::vmm)
"""


def version() -> str:
    assert VERSION is not None
    return VERSION.group(1)


def tool(name: str) -> str:
    """A tool of the virtual environment, or else of the machine."""
    beside = BIN / name
    return str(beside) if beside.exists() else (shutil.which(name) or name)


def need(name: str) -> str:
    """A tool that the two front-door commands do without: .ci/run installs it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def compilers(*names: str) -> list[str]:
    """Those that are there; in CI all must be."""
    found = [name for name in names if os.environ.get("CI") or shutil.which(name)]
    return found or ["cc"]


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def cmake_build(source: Path, build: Path, *options: str) -> None:
    ninja = tool("ninja")
    run(tool("cmake"), "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *options)
    run(tool("cmake"), "--build", build, "-j", "2")


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation, moved after it was made: nothing in it may remember where that was."""
    base = tmp_path_factory.mktemp("install")
    cmake_build(LIBVMM, base / "build", "-DVMM_BUILD_TESTS=OFF", "-DVMM_KERNELS=OFF", "-DCMAKE_INSTALL_LIBDIR=lib")
    run(tool("cmake"), "--install", base / "build", "--prefix", base / "first")
    return (base / "first").rename(base / "moved")


def consume(folder: Path, find: str, *options: str) -> str:
    (folder / "main.c").write_text(CONSUMER)
    (folder / "CMakeLists.txt").write_text(CONSUMER_CMAKE.format(find=find))
    cmake_build(folder, folder / "build", *options)
    return run(folder / "build" / "consumer")


def test_what_is_installed(prefix: Path) -> None:
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    assert {f"include/{name}" for name in HEADERS} | {"include/vmm/ops.def"} == {
        name for name in files if name.startswith("include/")
    }
    assert {"lib/libvmm.so", "lib/pkgconfig/vmm.pc", "lib/cmake/vmm/vmmConfig.cmake"} <= files
    assert "lib/cmake/vmm/vmmConfigVersion.cmake" in files


def test_consumer_by_find_package(prefix: Path, tmp_path: Path) -> None:
    find = f"find_package(vmm {version()} REQUIRED)"
    assert consume(tmp_path, find, f"-DCMAKE_PREFIX_PATH={prefix}") == f"{version()} VMM_ERROR_NOT_READY"


def test_find_package_refuses_a_version_that_does_not_fit(prefix: Path, tmp_path: Path) -> None:
    major, minor, _ = (int(part) for part in version().split("."))
    with pytest.raises(AssertionError, match="compatible with the version requested"):
        consume(tmp_path, f"find_package(vmm {major}.{minor + 1} REQUIRED)", f"-DCMAKE_PREFIX_PATH={prefix}")


def test_consumer_by_add_subdirectory(tmp_path: Path) -> None:
    find = f'set(VMM_KERNELS OFF)\nadd_subdirectory("{LIBVMM}" vmm)'
    assert consume(tmp_path, find) == f"{version()} VMM_ERROR_NOT_READY"
    assert not (tmp_path / "build" / "vmm" / "test_version").exists(), "a consumer does not get our tests"


def test_consumer_by_pkg_config(prefix: Path, tmp_path: Path) -> None:
    path = str(prefix / "lib" / "pkgconfig")
    pkg_config = need("pkg-config")
    assert run(pkg_config, "--modversion", "vmm", PKG_CONFIG_PATH=path).strip() == version()
    flags = run(pkg_config, "--cflags", "--libs", "vmm", PKG_CONFIG_PATH=path).split()
    (tmp_path / "main.c").write_text(CONSUMER)
    run(compilers("gcc")[0], tmp_path / "main.c", *flags, "-o", tmp_path / "consumer")
    output = run(tmp_path / "consumer", LD_LIBRARY_PATH=str(prefix / "lib"))
    assert output == f"{version()} VMM_ERROR_NOT_READY"


@pytest.mark.parametrize("compiler", compilers("gcc", "clang"))
@pytest.mark.parametrize("standard", ["c99", "c11", "c17"])
@pytest.mark.parametrize("header", HEADERS)
def test_headers_compile_alone_as_c(compiler: str, standard: str, header: str, tmp_path: Path) -> None:
    source = tmp_path / "x.c"
    source.write_text(f"#include <{header}>\n#include <{header}>\nint main(void) {{ return 0; }}\n")
    include = f"-I{LIBVMM / 'include'}"
    run(compiler, f"-std={standard}", *WARNINGS, "-Werror", include, "-fsyntax-only", source)


@pytest.mark.parametrize("compiler", compilers("g++", "clang++"))
@pytest.mark.parametrize("standard", ["c++11", "c++14", "c++17", "c++20"])
@pytest.mark.parametrize("header", HEADERS)
def test_headers_compile_alone_as_cpp(compiler: str, standard: str, header: str, tmp_path: Path) -> None:
    if compiler == "cc":
        compiler = need("c++")
    source = tmp_path / "x.cpp"
    source.write_text(f"#include <{header}>\n#include <{header}>\nint main() {{ return 0; }}\n")
    include = f"-I{LIBVMM / 'include'}"
    run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", include, "-fsyntax-only", source)


def preprocessed(header: str, *flags: str) -> str:
    text = run(compilers("gcc")[0], "-E", "-P", *flags, f"-I{LIBVMM / 'include'}", LIBVMM / "include" / header)
    return re.sub(r"\s+", " ", text)


def declared_functions() -> set[str]:
    text = re.sub(r"__attribute__\(\(visibility\(\"default\"\)\)\)", "VMM_PUBLIC", preprocessed("vmm/driver.h"))
    return set(re.findall(r"VMM_PUBLIC [^;(]*?\b(vmm_\w+) ?\(", text))


def test_every_declared_function_is_exported_and_no_other(prefix: Path) -> None:
    output = run("nm", "-D", "--defined-only", prefix / "lib" / "libvmm.so")
    exported = {line.split()[-1] for line in output.splitlines() if " T " in line}
    assert exported == declared_functions()


def test_an_installed_library_asks_for_nothing_forbidden(prefix: Path) -> None:
    run(sys.executable, ROOT / "scripts" / "check_symbols.py", prefix / "lib" / "libvmm.so")


@pytest.mark.parametrize("compiler", compilers("gcc", "clang"))
def test_no_warning_from_either_compiler(compiler: str, tmp_path: Path) -> None:
    """Every file of the library and of the Python extension, by itself, with the whole list of warnings as errors."""
    numbers = ["-D_GNU_SOURCE", '-DVMM_VERSION_STRING="0"', "-DVMM_VERSION_NUMBER=0"]
    paths = [f"-I{LIBVMM / 'include'}", f"-I{LIBVMM / 'src'}"]
    sources = sorted((LIBVMM / "src").glob("*/*.c"))
    assert sources
    run(compiler, "-std=c11", "-O1", *WARNINGS, "-Werror", *numbers, *paths, "-c", *sources, cwd=tmp_path)
    ours = sorted((ROOT / "pyvmm" / "binding").glob("*.c"))
    assert ours
    paths = [f"-I{LIBVMM / 'include'}", "-isystem", sysconfig.get_path("include")]
    run(compiler, "-std=c11", "-O1", *WARNINGS, "-Werror", *paths, "-c", *ours, cwd=tmp_path)


# ---- the wheel ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("wheel")
    run(
        *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"),
        *(f"--config-settings=build-dir={base / 'build'}", "--config-settings=cmake.define.VMM_KERNELS=OFF"),
        *("-w", base, ROOT),
    )
    (path,) = base.glob("*.whl")
    return path


def test_wheel_name(wheel: Path) -> None:
    name, its_version, python, abi, platform = wheel.stem.split("-")
    assert (name, its_version, python, abi) == ("libvmm", version(), "cp310", "abi3")
    assert platform.startswith("linux_")


def test_wheel_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    libraries = {name for name in files if re.search(r"libvmm[^/]*\.so", name)}
    assert libraries == {"pyvmm/libvmm.so"}
    assert not [name for name, mode in modes.items() if mode & 0o170000 == 0o120000], "wheels have no symlinks"
    assert {f"pyvmm/include/{name}" for name in (*HEADERS, "vmm/ops.def")} <= files
    assert {"pyvmm/cmake/vmm/vmmConfig.cmake", "pyvmm/pkgconfig/vmm.pc", "pyvmm/py.typed"} <= files
    assert {name.split("/")[0] for name in files} == {"pyvmm", f"libvmm-{version()}.dist-info"}
    extensions = {name for name in files if name.endswith(".so")} - libraries
    assert extensions == {"pyvmm/_vmm.abi3.so", "pyvmm/_fast.abi3.so"}
    assert {"pyvmm/_vmm.pyi", "pyvmm/_fast.pyi"} <= files
    assert not [name for name in files if name.endswith(("CMakeLists.txt", ".c", ".o", ".log"))]


@pytest.fixture(scope="session")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def python_in(unpacked: Path, *arguments: str) -> str:
    code = f"import sys, runpy; sys.path.insert(0, {str(unpacked)!r}); sys.argv[1:] = {list(arguments)!r}; "
    run_it = "runpy.run_module('pyvmm', run_name='__main__', alter_sys=True)"
    return run(sys.executable, "-I", "-c", code + run_it).strip()


def test_the_wheel_finds_its_own_library(unpacked: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(unpacked)!r}); import pyvmm; print(pyvmm.__file__, pyvmm.__version__)"
    assert run(sys.executable, "-I", "-c", code).split() == [str(unpacked / "pyvmm" / "__init__.py"), version()]


def test_consumer_by_the_wheels_cmake_config(unpacked: Path, tmp_path: Path) -> None:
    config = python_in(unpacked, "--cmake-dir")
    assert consume(tmp_path, "find_package(vmm REQUIRED)", f"-Dvmm_DIR={config}") == f"{version()} VMM_ERROR_NOT_READY"


def test_consumer_by_the_wheels_paths(unpacked: Path, tmp_path: Path) -> None:
    library, include = Path(python_in(unpacked, "--lib")), python_in(unpacked, "--include-dir")
    (tmp_path / "main.c").write_text(CONSUMER)
    run(compilers("gcc")[0], tmp_path / "main.c", f"-I{include}", library, "-o", tmp_path / "consumer")
    output = run(tmp_path / "consumer", LD_LIBRARY_PATH=str(library.parent))
    assert output == f"{version()} VMM_ERROR_NOT_READY"


def test_the_binding_knows_every_declared_function() -> None:
    """cffi got its declarations from the preprocessed headers; what it compiled must know all of them."""
    code = "from pyvmm._vmm import lib; print(*(name for name in dir(lib)))"
    known = set(run(sys.executable, "-I", "-c", code).split())
    text = preprocessed("vmm/driver.h", "-DVMM_CDEF")
    cdef = set(re.findall(r"\b(vmm_\w+) ?\([^;{}]*\) ?;", text)) - set(re.findall(r"\(\*(vmm_\w+)\)", text))
    assert cdef == declared_functions()
    assert cdef <= known
