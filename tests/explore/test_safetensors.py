"""The engine's reader of safetensors: what it refuses, and 16-bit numbers."""

import base64

import torch
from helpers.javascript import Run

READ = """
try {
  const tensors = exported.readSafetensors(bytes(data.file));
  return { found: Object.fromEntries([...tensors].map(([name, { values }]) => [name, values])) };
} catch (error) {
  return { message: error.message };
}
"""


def file_of(header: bytes, numbers: bytes = b"", length: int | None = None) -> bytes:
    said = len(header) if length is None else length
    return said.to_bytes(8, "little") + header + numbers


def entry(dtype: str = "F32", shape: str = "[2]", offsets: str = "[0,8]") -> bytes:
    return f'{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}'.encode()


NAN, ONES = b"\0\0\xc0\x7f" * 2, b"\0\0\x80\x3f" * 2
BAD_FILES = {
    "too few": b"abc",
    "header is said": file_of(b"{}", length=2**40),
    "not JSON": file_of(b"{nonsense"),
    "not a JSON object": file_of(b"[]"),
    "F32 or F16": file_of(entry("I64"), ONES),
    "valid shape": file_of(entry(shape="[-2]"), ONES),
    "bytes 0 to 80": file_of(entry(shape="[20]", offsets="[0,80]"), ONES),
    "bytes 0 to 4": file_of(entry(offsets="[0,4]"), ONES),
    "contains NaN": file_of(entry(), NAN),
}


def test_files_that_are_not_safetensors_are_refused(run_js: Run) -> None:
    body = f"return data.map((file) => {{ const data = {{ file }}; {READ} }});"
    files = [
        base64.b64encode(file).decode() for file in (*BAD_FILES.values(), file_of(entry(), ONES))
    ]
    *answers, good = run_js("engine/safetensors.js", body, files)
    for reason, answer in zip(BAD_FILES, answers, strict=True):
        assert reason in answer["message"], answer
    assert good["found"]["w"].tolist() == [1, 1]


def test_half_precision_is_read_exactly(run_js: Run) -> None:
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    expected = bits.view(torch.float16).float()
    body = "return exported.fromHalf(Uint16Array.from({ length: 65536 }, (_, n) => n));"
    found = run_js("engine/safetensors.js", body)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
