"""Builds the extensions; all else about the package is in pyproject.toml.

``src_pyx/kafka07c/_x.pyx`` becomes ``kafka07c._x``. The C that Cython writes goes under ``build/``, never beside the
sources. Plain C without ``Python.h`` lies in ``src_pyx/kafka07c/c``; its kernels choose at run time, so the objects
are built for the base instruction set and only single functions ask for more.
"""

import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "src_pyx"))
import preflight  # noqa: E402

SOURCES = "src_pyx/kafka07c"
C_OWNER = "_crc32"  # the one extension that holds the C; the others call it through its .pxd


def c_files(pattern: str) -> list[str]:
    return [str(path.relative_to(HERE)) for path in sorted((HERE / SOURCES / "c").glob(pattern))]


def extension(name: str) -> Extension:
    return Extension(
        f"kafka07c.{name}",
        sources=[f"{SOURCES}/{name}.pyx", *(c_files("*.c") if name == C_OWNER else [])],
        include_dirs=[f"{SOURCES}/c"],
        depends=c_files("*.[ch]"),
        extra_compile_args=["-O3", "-std=c11", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"],
    )


def extensions() -> list:
    preflight.check_build()
    names = sorted(path.stem for path in (HERE / SOURCES).glob("*.pyx"))
    return cythonize(
        [extension(name) for name in names],
        include_path=["src_pyx"],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "freethreading_compatible": True,
        },
    )


wants_no_build = {"sdist", "egg_info", "dist_info", "clean", "--version", "--name"} & set(sys.argv[1:])
setup(ext_modules=[] if wants_no_build else extensions())
