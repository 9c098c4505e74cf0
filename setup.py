"""Kernels for some CPUs; where nothing compiles them, slower paths serve. No OpenMP is linked: torch has one."""

from glob import glob

from setuptools import Extension, setup

C = "src/longform/functional/native/csrc"
KERNELS = Extension(
    "longform.functional.native._kernels",
    sources=sorted(glob(f"{C}/*.c")),
    depends=sorted(glob(f"{C}/*.h")),
    extra_compile_args=["-std=gnu11", "-O3", "-fno-strict-aliasing", "-fopenmp"],
    libraries=["m"],
    optional=True,
)

setup(ext_modules=[KERNELS])
