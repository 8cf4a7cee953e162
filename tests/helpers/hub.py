"""A small Hugging Face Hub on this machine: models in folders, served as the real one does."""

import hashlib
import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serving(models: Path) -> Iterator[str]:
    """The address of a Hub with the models in a folder, as USER/REPO; any other is not found."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            path = self.path.partition("?")[0]
            listed = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path)
            file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
            found = listed or file
            folder = models / found[1] if found else models / "none"
            revision = found[found.lastindex - 1 if file else 3] if found else ""
            if not folder.is_dir():
                self.reply(404, b"", body, {"X-Error-Code": "RepoNotFound"})
            elif revision not in ("main", COMMIT):
                self.reply(404, b"", body, {"X-Error-Code": "RevisionNotFound"})
            elif listed:
                self.reply(200, json.dumps(listing(folder, listed[2])).encode(), body, {})
            elif file and (folder / file[3]).is_file():
                blob = (folder / file[3]).read_bytes()
                etag = f'"{hashlib.sha256(blob).hexdigest()}"'
                self.reply(200, blob, body, {"ETag": etag, "X-Repo-Commit": COMMIT})
            else:
                self.reply(404, b"", body, {"X-Error-Code": "EntryNotFound"})

        def reply(self, status: int, blob: bytes, body: bool, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(blob))}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(blob)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def listing(folder: Path, kind: str) -> Any:
    """What the Hub says about a model ("revision"), or about its files ("tree")."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    if kind == "tree":
        return [
            {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": COMMIT} for f in files
        ]
    name = "/".join(folder.parts[-2:])
    about = {"_id": "1", "id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": []}
    return {**about, "siblings": [{"rfilename": file.name} for file in files]}


def uploading_to(models: Path) -> Any:
    """A class that stands for `HfApi` and copies uploads into a folder, as USER/REPO."""

    class FakeApi:
        def __init__(self, **_: Any) -> None:
            pass

        def create_repo(self, repo_id: str, **options: Any) -> Any:
            (models / repo_id).mkdir(parents=True, exist_ok=options["exist_ok"])
            return SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, repo_id: str, folder_path: Path, **_: Any) -> str:
            shutil.copytree(folder_path, models / repo_id, dirs_exist_ok=True)
            return f"https://example.org/{repo_id}/commit/{COMMIT}"

    return FakeApi
