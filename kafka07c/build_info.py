"""What this installation is made of: :func:`build_info`; and why its compiled core cannot be imported.

Nothing here falls back in silence: what runs slower than it could on this machine is said in :attr:`BuildInfo.slow`.
"""

from __future__ import annotations

import os
import platform
import sysconfig
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import MappingProxyType

__all__ = ["BuildInfo", "build_info"]

_PACKAGES = ("cramjam", "isal", "kazoo", "numpy")
_ISAL_MACHINES = ("x86_64", "aarch64", "AMD64", "arm64")  # where pyproject.toml asks for it


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What runs here. ``str()`` is one line of it, :meth:`as_dict` all of it for JSON."""

    version: str
    #: "CPython 3.13.1"
    python: str
    #: the compiler of the extensions, "gcc 12.2.0"
    compiler: str
    #: machine, C library, more than the base instruction set ("avx2"), "optimized" or "not-optimized", "sanitized"
    compiled_for: tuple[str, ...]
    #: the CRC kernels in this build, and those of them that this CPU can run; the fastest first
    kernels_compiled: tuple[str, ...]
    kernels: tuple[str, ...]
    #: the one in use, and why
    kernel: str
    kernel_reason: str
    #: what gzip is done with: "isal", or "zlib" where isal cannot be imported
    gzip: str
    #: versions; of isal only where it is installed, and of zlib the one that Python runs with
    packages: Mapping[str, str]
    #: what is slower here than it could be, each with its reason; empty: nothing
    slow: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """All of it, as json.dumps takes it."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: _plain(value) for name, value in fields.items()}

    def __str__(self) -> str:
        made = f"{self.python}, {self.compiler}, {' '.join(self.compiled_for)}"
        packages = ", ".join(f"{name} {number}" for name, number in self.packages.items())
        line = f"kafka07c {self.version} ({made}; crc {self.kernel}, gzip {self.gzip}; {packages})"
        return line + "".join(f"; slow: {reason}" for reason in self.slow)


def build_info() -> BuildInfo:
    """What this installation is made of, looked up now: versions, compiler, the kernels in use and why."""
    from importlib.metadata import version  # takes a tenth of the package's import, and is seldom wanted

    from kafka07c import _compress, _crc32

    compiled, able = tuple(_crc32.compiled_kernels()), tuple(_crc32.kernels())
    kernel, gzip, compiled_for = _crc32.kernel(), _compress.gzip_backend(), tuple(_crc32.compiled_for())
    reason = _kernel_reason(kernel, able)
    return BuildInfo(
        version=version("kafka07c"),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        compiler=_crc32.compiler().strip(),
        compiled_for=compiled_for,
        kernels_compiled=compiled,
        kernels=able,
        kernel=kernel,
        kernel_reason=reason,
        gzip=gzip,
        packages=MappingProxyType(_versions()),
        slow=(*_slow_kernel(kernel, compiled, able, reason), *_slow_gzip(gzip), *_slow_build(compiled_for)),
    )


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**found, "zlib": zlib.ZLIB_RUNTIME_VERSION}


def _kernel_reason(kernel: str, able: tuple[str, ...]) -> str:
    if kernel == os.environ.get("KAFKA07C_KERNEL"):
        return f"KAFKA07C_KERNEL={kernel}"
    return "the best that this CPU can run" if kernel == able[0] else "chosen by select_kernel()"


def _slow_kernel(kernel: str, compiled: tuple[str, ...], able: tuple[str, ...], reason: str) -> list[str]:
    if kernel != able[0]:
        return [f"CRC by {kernel}, not {able[0]} ({reason})"]
    if kernel != compiled[-1]:
        return []
    lacks = f"this CPU can run none of {', '.join(compiled[:-1])}" if compiled[1:] else "no other was compiled in"
    return [f"CRC by the portable kernel {kernel}: {lacks}"]


def _slow_gzip(gzip: str) -> list[str]:
    if gzip == "isal":
        return []
    if platform.machine() not in _ISAL_MACHINES:
        return [f"gzip by zlib: there is no isal for {platform.machine()}"]
    try:
        from isal import isal_zlib  # noqa: F401
    except ImportError as error:
        return [f"gzip by zlib, not isal ({error})"]
    return ["gzip by zlib: isal was installed after the start"]


def _slow_build(compiled_for: tuple[str, ...]) -> list[str]:
    return [f"the extensions are {word}" for word in ("not-optimized", "sanitized") if word in compiled_for]


#: how Cython words it when one extension does not find in another what it was compiled against
_MISFITS = ("does not export expected C", "has wrong signature", "size changed", "has no attribute")
_MEND = "install it (pip install .), or in a checkout build it (make build/built)"


def why_no_core(error: Exception) -> str | None:
    """In one line, why the import of an extension of ours failed with ``error``; None: it was something else.

    An extension for another Python is not seen by the import at all. One that was built from other sources than its
    neighbours is loaded, and then Cython finds types or functions that do not fit.
    """
    name, path, text = getattr(error, "name", None) or "", getattr(error, "path", None) or "", str(error)
    ours = name.startswith("kafka07c._") or Path(path).parent == Path(__file__).parent
    if isinstance(error, ModuleNotFoundError):
        return f"{_not_found(name)}: {_MEND}" if ours else None
    misfit = "kafka07c._" in text and any(words in text for words in _MISFITS)
    if ours or misfit:
        return f"kafka07c's compiled core does not fit this Python, this machine or itself ({text}): {_MEND}"
    return None


def _not_found(name: str) -> str:
    others = _built_for_others(name.rpartition(".")[2])
    if not others:
        return f"kafka07c is here without its compiled core ({name})"
    this = sysconfig.get_config_var("SOABI")
    return f"kafka07c's compiled core ({name}) was built for another Python: {', '.join(others)}, and this is {this}"


def _built_for_others(extension: str) -> list[str]:
    """The ABIs, as "cpython-312-x86_64-linux-gnu", that ``extension`` was built for and this Python does not load."""
    files = [path.name for path in Path(__file__).parent.glob(f"{extension}.*") if path.suffix in (".so", ".pyd")]
    return sorted(name.split(".")[1] for name in files if name.removeprefix(extension) not in EXTENSION_SUFFIXES)
