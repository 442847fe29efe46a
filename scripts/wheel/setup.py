"""The package that scripts/build_wheel.sh fills with the program."""

import os
from pathlib import Path

from setuptools import setup

SERIES = Path("bella/torch_series").read_text().strip()

setup(
    name="bella",
    version=os.environ["BELLA_VERSION"],
    description="Bayesian fine-tuning of pretrained networks",
    license_expression="MIT OR Apache-2.0",
    license_files=["LICENSE-*"],
    long_description=Path("README.md").read_text(),
    long_description_content_type="text/markdown",
    packages=["bella"],
    package_data={"bella": ["bin/bella", "torch_series", "configs/**/*.toml", "assets/*.pt"]},
    python_requires=">=3.10",
    install_requires=[f"torch=={SERIES}.*"],
    entry_points={"console_scripts": ["bella = bella:main"]},
    zip_safe=False,
)
