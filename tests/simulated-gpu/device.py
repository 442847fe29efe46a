"""Runs bella on the CPU or on a GPU, and reads what the simulated one counted."""

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

MOST_SECONDS = 600
WITHOUT_DEVICE = ("score", "inspect", "report")


@dataclass
class Machine:
    """The program, and what stands for the GPU: `preload` is the simulated one, None a real one."""

    binary: Path
    preload: Path | None
    threads: int = 1
    gpu: str = "cuda"

    @property
    def real(self):
        return self.preload is None

    def environment(self, device, folder, **more):
        environment = dict(os.environ, BELLA_CACHE=str(folder / "cache"), OMP_NUM_THREADS=str(self.threads))
        if device == "cuda" and not self.real:
            environment |= {"LD_PRELOAD": str(self.preload), "SIMULATED_GPU_STATS": "1"}
        return environment | {name: str(value) for name, value in more.items()}

    def arguments(self, arguments, device, folder):
        arguments = [str(argument) for argument in arguments]
        if arguments[0] not in WITHOUT_DEVICE:
            arguments += ["--device", self.gpu if device == "cuda" else device, "--threads", str(self.threads)]
            if arguments[0] != "head":
                arguments += ["--workers", "1", "--out", str(folder)]
        return [str(self.binary), *arguments]

    def run(self, arguments, device, folder, **environment):
        """Runs a command to its end; everything that it says is added to the log of its device."""
        command = self.arguments(arguments, device, folder)
        environment = self.environment(device, folder, **environment)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
            try:
                output, messages = child.communicate(timeout=MOST_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                output, messages = child.communicate()
                messages += f"error: killed after {MOST_SECONDS} s\n"
        with open(folder.parent / f"{device}.log", "a") as log:
            log.write(f"$ {' '.join(command[1:])}\n{output}{messages}exit {child.returncode}\n\n")
        return Done(command[1:], child.returncode, output, messages)


@dataclass
class Done:
    """A command that has ended."""

    arguments: list
    code: int
    output: str
    messages: str
    waits: dict = field(init=False)
    peak_bytes: float | None = field(init=False)

    def __post_init__(self):
        counted = re.search(r"^simulated GPU: .* peak ([\d.]+) MiB.*host waited:(.*)", self.messages, re.M)
        self.peak_bytes = float(counted[1]) * 2**20 if counted else None
        self.waits = {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", counted[2])} if counted else {}

    def problem(self):
        """What went wrong, in one line; None if nothing did."""
        if self.code == 0:
            return None
        lines = [line for line in self.messages.splitlines() if line.strip() and not line.startswith("simulated GPU: 0")]
        crash = [line for line in lines if "segmentation" in line]
        said = crash or [line for line in lines if line.startswith("error")] or lines[-2:]
        return f"{' '.join(self.arguments[:6])}: exit {self.code}: {' / '.join(said)}"
