# make demo    set up .venv, then see cluster routing at work on real images
# make test    set up .venv, then run the tests
# make lint    ruff and mypy
# make test-registry   fetch the real MNIST, Fashion-MNIST and CIFAR-10 and check them
# make soak    kill a training run 100 times and compare the outcome

PY := .venv/bin/python
# Some CPUs advertise AMX but die in oneDNN's AMX bfloat16 path; this instruction set is safe everywhere.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.PHONY: help demo test test-registry soak lint format clean
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

test-registry: .venv/.ok
	$(PY) -m pytest -m registry

soak: .venv/.ok
	$(PY) tests/training/soak.py --kills 100

lint: .venv/.ok
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: .venv/.ok
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache
