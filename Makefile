# make demo    set up .venv, then see cluster routing at work on real images
# make test    set up .venv, then run the tests
# make test-triton   check the Triton kernel without a GPU, in an environment of its own
# make lint    ruff and mypy

PY := .venv/bin/python
# Some CPUs advertise AMX but die in oneDNN's AMX bfloat16 path; this instruction set is safe everywhere.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.PHONY: demo test test-triton lint format clean
.DEFAULT_GOAL := help

help:
	@grep '^# make' Makefile | cut -c3-

.venv/.ok: pyproject.toml constraints.txt
	@echo "Setting up .venv: one to two minutes, about 1.5 GB"
	python3 -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: .venv/.ok
	.venv/bin/clustercaps demo

test: .venv/.ok
	$(PY) -m pytest -n 2

# No extra of the package: CUDA builds of torch bring triton, and only its interpreter is wanted here.
.venv-triton/.ok: pyproject.toml constraints.txt
	@echo "Setting up .venv-triton: one to two minutes, about 2.1 GB"
	python3 -m venv .venv-triton
	.venv-triton/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' triton==3.7.1
	@touch $@

test-triton: .venv-triton/.ok
	TRITON_INTERPRET=1 .venv-triton/bin/python -m pytest -m triton

lint: .venv/.ok
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: .venv/.ok
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf .venv .venv-triton .mypy_cache .pytest_cache .ruff_cache
