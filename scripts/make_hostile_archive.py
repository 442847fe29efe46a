"""Makes tests/fixtures/hostile.pt, a TorchScript archive that writes the file `hostile-was-here` when it is loaded, and the
archives of tests/fixtures/hostile: containers that two readers of zip files read in two ways, so that one finds the code
of that archive where the other finds nothing of it, and archives whose forward ends the process or never returns.

Usage: python scripts/make_hostile_archive.py tests/fixtures

Written with PyTorch 2.11. They are what `tests/library/archives.rs` proves that bella does not load.
"""

import io
import struct
import sys
import zipfile
import zlib
from pathlib import Path

import torch

DEPTH = 10_000


class Hostile(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))

    @torch.jit.export
    def __getstate__(self):
        return self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        self.weight = state[0]
        self.training = state[1]
        torch.save(state[0], "hostile-was-here")

    def forward(self, x):
        return x + self.weight


class Innocent(torch.nn.Module):
    """Its forward starts with a line that `acting` replaces."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x):
        y = torch.neg(self.weight)
        return torch.add(torch.mean(x, [1, 2, 3]).unsqueeze(1), y)


# --- zip files in raw bytes -------------------------------------------------------------------------------------------


def record(name, data, extra=b"", *, flags=0, method=0, local_name=None):
    """An entry: its name and data, with an extra field in the directory and in the local header."""
    packed = data
    if len(data) > 10_000:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed, method = packer.compress(data) + packer.flush(), 8
    sums = struct.pack("<III", zlib.crc32(data), len(packed), len(data))
    return {"name": name, "data": packed, "sums": sums, "extra": extra, "flags": flags, "method": method, "local": local_name or name}


def written(records, start=0):
    """The bytes of entries from the place `start` on, and their directory."""
    body, directory = b"", b""
    for r in records:
        common = struct.pack("<HHHH", r["flags"], r["method"], 0, 33) + r["sums"]
        name, local = r["name"].encode(), r["local"].encode()
        directory += struct.pack("<4sHH", b"PK\1\2", 20, 20) + common
        directory += struct.pack("<HHHHHII", len(name), len(r["extra"]), 0, 0, 0, 0, start + len(body)) + name + r["extra"]
        body += struct.pack("<4sH", b"PK\3\4", 20) + common + struct.pack("<HH", len(local), len(r["extra"]))
        body += local + r["extra"] + r["data"]
    return body, directory


def end(count, size, start):
    return struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, size, start, 0)


def zipped(records):
    body, directory = written(records)
    return body + directory + end(len(records), len(directory), len(body))


def path_field(name, shown):
    """Info-ZIP's field with another name for an entry, 0x7075."""
    content = struct.pack("<BI", 1, zlib.crc32(name.encode())) + shown.encode()
    return struct.pack("<HH", 0x7075, len(content)) + content


def two_directories(innocent, hostile):
    """The plain end record names the directory of `innocent`, the zip64 locator that of `hostile`."""
    body, directory = written(hostile)
    start = len(body)
    record64 = struct.pack(
        "<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, len(hostile), len(hostile), len(directory), start
    )
    body += directory + record64
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, start + len(directory), 1)
    more, second = written(innocent, len(body))
    body += more
    # The plain directory contains the locator as a comment of its last entry, so that both stand before the end record.
    at = second.rindex(b"PK\1\2")
    second = second[: at + 32] + struct.pack("<H", len(locator)) + second[at + 34 :] + locator
    return body + second + end(len(innocent), len(second), len(body))


def entries(module, name="hostile"):
    """What torch.jit.save writes, without what nothing needs."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(module), buffer)
    source = zipfile.ZipFile(buffer)
    found = {}
    for entry in source.namelist():
        inside = entry.split("/", 1)[1]
        if not inside.endswith("debug_pkl") and inside not in (".data/serialization_id",):
            found[inside] = source.read(entry)
    return found


def named(found, folder="a"):
    return [record(f"{folder}/{name}", data) for name, data in found.items()]


CODE = "code/__torch__.py"


def containers():
    """Containers in which libtorch, or another reader, finds the hostile code."""
    hostile, innocent = entries(Hostile()), entries(Innocent())
    code = hostile.pop(CODE)
    harmless = record("a/code/__torch__/harmless.py", b"")
    rest = named(hostile) + [harmless]
    yield "capital-name", zipped(rest + [record("a/code/__torch__.PY", code)])
    yield "capital-folder", zipped(rest + [record("a/CODE/__torch__.py", code)])
    yield "other-ending", zipped(rest + [record("a/code/__torch__.pyc", code)])
    yield "twice", zipped(rest + [record(f"a/{CODE}", code), record(f"a/{CODE}", innocent[CODE])])
    yield "twice-but-for-case", zipped(rest + [record("a/code/__torch__.PY", code), record(f"a/{CODE}", innocent[CODE])])
    field = path_field(f"a/{CODE}", "a/extra/notes")
    yield "path-field", zipped(rest + [record(f"a/{CODE}", code, field)])
    yield "two-directories", two_directories(named(innocent), rest + [record(f"a/{CODE}", code)])
    yield "other-folder", zipped(rest + [record(f"A/{CODE}", code)])
    yield "local-name", zipped(rest + [record("a/extra/notes", code, local_name=f"a/{CODE}"[:13])])
    yield "encrypted", zipped(named(innocent) + [record("a/extra/notes", b"", flags=1)])
    yield "odd-compression", zipped(named(innocent) + [record("a/extra/notes", b"", method=93)])
    yield "unknown-field", zipped(named(innocent) + [record("a/extra/notes", b"", b"\x75\x78\x02\x00ab")])
    body, directory = written(named(innocent))
    gap = body + b"nobody's" + directory + end(len(innocent), len(directory), len(body) + 8)
    yield "gap", gap
    yield "several-disks", zipped(named(innocent))[:-18] + b"\1\0" + zipped(named(innocent))[-16:]


# --- archives that act --------------------------------------------------------------------------------------------------


def called(number):
    """A call of one of the functions that call each other."""
    return f"__torch__.f{number}(1)"


def acting(lines, constants=None, functions=0):
    """The innocent archive with other lines in its forward, which compute `a`, with another pickle of constants, and with
    functions each of which calls the next one."""
    found = entries(Innocent())
    code = found[CODE].decode()
    at = code.index("    weight = self.weight\n")
    lines = lines and [*lines, "x = torch.add(x, a)"]
    code = code[:at] + "".join(f"    {line}\n" for line in lines) + code[at:]
    for number in range(functions):
        code += f"def f{number}(x: int) -> int:\n  return {called(number + 1) if number + 1 < functions else 'x'}\n"
    found[CODE] = code.encode()
    if constants is not None:
        found["constants.pkl"] = constants
    return zipped(named(found))


def actors():
    """Archives whose code calls nothing but operators that compute."""
    deep = lambda before, inside, after: before * DEPTH + inside + after * DEPTH  # noqa: E731
    zeros = "torch.zeros([2, 2, 4])"
    encoder = ", ".join(["torch.zeros([12, 4])", "torch.zeros([12])", "torch.zeros([4, 4])", "torch.zeros([4])"])
    ones = ", ".join(["torch.ones([4])"] * 4)
    mlp = "torch.zeros([4, 4]), torch.zeros([4]), torch.zeros([4, 4]), torch.zeros([4])"
    layer = f"torch._transformer_encoder_layer_fwd({zeros}, 4, 0, {encoder}, False, False, 1.0e-5, {ones}, {mlp})"
    yield "remainder", acting(["a = torch.remainder(torch.size(x, 1), torch.sub(torch.size(x, 1), 3))"])
    yield "smallest-by-minus-one", acting(
        ["s = torch.sub(-9223372036854775807, torch.sub(torch.size(x, 1), 2))", "a = torch.floordiv(s, torch.sub(2, torch.size(x, 1)))"]
    )
    yield "no-heads", acting([f"a = torch.sum({layer})"])
    yield "tiny-scale", acting(["a = torch.sum(torch.upsample_nearest2d(torch.zeros([2, 3, 8, 8], dtype=0), [64, 64], 1.0e-300, 1.0e-300))"])
    yield "calls", acting([f"a = {called(0)}"], functions=DEPTH)
    yield "for-ever", acting(["a = 1", "while True:", "  a = torch.add(a, 1)"])
    yield "doubling", acting(["b = annotate(List[int], [1])", "while True:", "  b = torch.add(b, b)", "a = torch.len(b)"])
    yield "huge", acting(["a = torch.sum(torch.zeros([1000000000000], dtype=6))"])
    yield "parentheses", acting([f"a = {deep('(', 'x', ')')}"])
    yield "lists", acting([f"a = torch.len({deep('[', 'x', ']')})"])
    yield "types", acting([f"b = annotate({deep('List[', 'int', ']')}, [])", "a = torch.len(b)"])
    yield "sums", acting([f"a = 1{' + 1' * DEPTH}"])
    yield "tuples", acting([], constants=b"\x80\x02)" + b"\x85" * DEPTH + b".")
    yield "cycle", acting([], constants=b"\x80\x02]q\x00h\x00a\x85.")


folder = Path(sys.argv[1])
torch.jit.script(Hostile()).save(str(folder / "hostile.pt"))
(folder / "hostile").mkdir(exist_ok=True)
for name, data in [*containers(), *actors()]:
    (folder / "hostile" / f"{name}.pt").write_bytes(data)
