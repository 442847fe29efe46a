#!/usr/bin/env python3
"""Compares bella's cache of the Hub with that of huggingface_hub, against one server on the loopback that stands for the Hub.

    scripts/compare_hub.py [target/debug/bella]

1. bella downloads a tiny checkpoint into an empty cache; transformers reads it with HF_HUB_OFFLINE=1.
2. huggingface_hub downloads it into another empty cache; bella reads it with --offline, and without a request.
3. Both caches have the same links, blobs and references.

Compared with huggingface_hub 2.4.0 and transformers 5.24.0: no difference.
"""

import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "org/tiny-clip"
ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/fixtures/folders/hf-vit"


class Hub(http.server.BaseHTTPRequestHandler):
    seen = []

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def send(self, status, headers, body, with_body):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "X-Repo-Commit": COMMIT, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def answer(self, with_body):
        Hub.seen.append((self.command, self.path))
        path = self.path.split("?")[0]
        if path.startswith(f"/api/models/{REPOSITORY}"):
            files = [{"rfilename": file.name} for file in sorted(FOLDER.iterdir())]
            body = json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": files}).encode()
            return self.send(200, {"Content-Type": "application/json"}, body, with_body)
        name = path.rsplit("/", 1)[-1]
        file = FOLDER / name
        if not path.startswith(f"/{REPOSITORY}/resolve/") or not file.is_file():
            return self.send(404, {"X-Error-Code": "EntryNotFound"}, b"", with_body)
        body = file.read_bytes()
        is_large = name.endswith(".safetensors")
        digest = hashlib.sha256(body) if is_large else hashlib.sha1(b"blob %d\0" % len(body) + body)
        return self.send(200, {"ETag": f'"{digest.hexdigest()}"'}, body, with_body)


def layout(cache):
    """Every file of a repository's folder in the cache: its content, or where it leads."""
    folder = cache / "hub" / ("models--" + REPOSITORY.replace("/", "--"))
    kept = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
    relative = {str(path.relative_to(folder)): path for path in kept}
    return {
        name: os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in relative.items()
        if name.split("/")[0] in ("blobs", "refs", "snapshots")
    }


def main():
    bella = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/debug/bella").resolve())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)

        def run(home, command, **more):
            env = {**os.environ, "HF_HOME": str(place / home), "HF_ENDPOINT": address, "HF_HUB_DISABLE_XET": "1", **more}
            done = subprocess.run(command, env=env, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{command}: {done.stderr}")
            return done.stdout

        run("bella", [bella, "inspect", f"hf://{REPOSITORY}"])
        read = "import transformers; m = transformers.AutoModel.from_pretrained({!r}); print(sum(p.numel() for p in m.parameters()))"
        found = run("bella", [sys.executable, "-c", read.format(REPOSITORY)], HF_HUB_OFFLINE="1")
        print("transformers reads what bella has downloaded:", found.strip(), "parameters")
        files = sorted(path.name for path in (place / "bella/hub").rglob("snapshots/*/*"))
        fetch = "import huggingface_hub as h; [h.hf_hub_download({!r}, f) for f in {!r}]"
        run("python", [sys.executable, "-c", fetch.format(REPOSITORY, files)])
        Hub.seen.clear()
        out = run("python", [bella, "inspect", f"hf://{REPOSITORY}", "--offline"])
        print("bella reads what huggingface_hub has downloaded:", out.splitlines()[1].strip())
        asked = list(Hub.seen)
        ours, theirs = layout(place / "bella"), layout(place / "python")
        for name in sorted(set(ours) | set(theirs)):
            if ours.get(name) != theirs.get(name):
                print("differs:", name, ours.get(name), theirs.get(name))
        same = ours == theirs and not asked
        print(f"{len(ours)} entries in each cache,", "no difference" if same else f"DIFFERENT, requests: {asked}")
        sys.exit(not same)


if __name__ == "__main__":
    main()
